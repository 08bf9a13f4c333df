"""Every `hmas` command with the least arguments that let it start, and what is missing for it in a base install."""

from pathlib import Path

import typer

from hmas.mesh.cli import PARTS, app, mount

RUNS = ""  # the command does what it is for, or says what else is missing

# Words of the command and its arguments -> the extra that a base install must name, or RUNS. FILE exists.
COMMANDS: dict[str, tuple[str, str]] = {
    "up": ("--port 0", "embedded"),
    "top": ("--once 0.1", RUNS),
    "console": ("--port 0", RUNS),
    "pin": ("edf", RUNS),
    "why": ("some-request", RUNS),
    "jobs": ("", RUNS),
    "doctor": ("--port 0", "embedded"),
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
    "sim run": ("", "sim"),
    "sim capacity": ("FILE", "sim"),
    "sim replay-log": ("FILE", "sim"),
    "whatif": ("FILE", "sim"),
    "train perception": ("--data .", "train"),
    "train held-out": ("--data .", "train"),
    "train sizes": ("--data .", "train"),
    "train generative": ("--base some-model --data .", "train"),
    "train prediction": ("--data .", "train"),
    "eval perception": ("--data FILE", "perception"),
    "eval prediction": ("--data FILE", "train"),
    "replay": ("FILE", "load"),
    "compare": ("", "load"),
    "label": ("FILE out.parquet", "load"),
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
