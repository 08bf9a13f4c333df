"""Every `hmas` command with the least arguments that let it start, and what is missing for it in a base install."""

from pathlib import Path

import typer

from hmas.mesh.cli import PARTS, app, mount

RUNS = ""  # the command does what it is for, or says what else is missing
CLONE = "clone"  # no installation of the wheel has it

# Words of the command and its arguments -> the extra that a base install must name, RUNS or CLONE. FILE exists.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("--port 0", "mesh"),
    "engine": ("--profile nothing", RUNS),
    "config show": ("", RUNS),
    "config check": ("--config FILE", RUNS),
    "config schema": ("", RUNS),
    "top": ("--once 0.1", RUNS),
    "console": ("--port 0", RUNS),
    "pin": ("edf", RUNS),
    "why": ("some-request", RUNS),
    "jobs": ("", RUNS),
    "doctor": ("--port 0", "mesh"),
    "secrets": ("out", RUNS),
    "certificates": ("out", "certificates"),
    "keys make": ("someone --file keys.yaml", RUNS),
    "keys list": ("--file FILE", RUNS),
    "keys revoke": ("someone --file FILE", RUNS),
    "usage show": ("--dir .", RUNS),
    "usage export": ("--dir .", RUNS),
    "keys rotate": ("someone --file FILE", RUNS),
    "load run": ("poisson --url http://127.0.0.1:9", "load"),
    "load replay": ("poisson", "load"),
    "load compare": ("nowhere", "load"),
    "load annotate": ("poisson out.parquet", "load"),
    "load traces list": ("", RUNS),
    "load traces fetch": ("nothing", RUNS),
    "load traces stats": ("FILE", "load"),
    "traces list": ("", RUNS),
    "traces fetch": ("nothing", RUNS),
    "traces stats": ("FILE", "load"),
    "sim run": ("", CLONE),
    "sim capacity": ("FILE", CLONE),
    "sim replay-log": ("FILE", CLONE),
    "whatif": ("FILE", "sim"),
    "report": ("", "load"),
    "plan search": ("MODEL=FILE --gpus 1xh100", "sim"),
    "plan verify": ("FILE MODEL=FILE", "sim"),
    "plan show": ("", "sim"),
    "plan diff": ("FILE", "sim"),
    "plan apply": ("FILE", "sim"),
    "plan lift": ("", "sim"),
    "profile fit": ("--data .", "load"),
    "train perception": ("--data .", CLONE),
    "train held-out": ("--data .", CLONE),
    "train sizes": ("--data .", CLONE),
    "train generative": ("--base some-model --data .", CLONE),
    "train prediction": ("--data .", CLONE),
    "eval perception": ("--data FILE", CLONE),
    "eval prediction": ("--data FILE", CLONE),
    "replay": ("FILE", "load"),
    "compare": ("", "load"),
    "label": ("FILE out.parquet", CLONE),
    "calibrate": ("http://127.0.0.1:9", "load"),
}


def every_command() -> set[str]:
    """The words of every command, as the whole installation has them."""
    for name, part in PARTS.items():
        mount(name, part)
    return set(_leaves(typer.main.get_command(app), ""))


def _leaves(command: object, words: str) -> list[str]:
    inner = getattr(command, "commands", None)
    if inner is None:
        return [words]
    return [leaf for name, c in inner.items() for leaf in _leaves(c, f"{words} {name}".strip())]


def arguments(words: str, file: Path) -> list[str]:
    return [*words.split(), *COMMANDS[words][0].replace("FILE", str(file)).split()]
