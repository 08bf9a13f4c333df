"""What is missing says so: every command and every service of a base install ends without a traceback."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from hmas.mesh.cli import PARTS
from tests.package.commands import CLONE, COMMANDS, RUNS, arguments
from tests.package.conftest import Installed

pytestmark = [pytest.mark.package, pytest.mark.timeout(900)]

USAGE_ERROR = 2
SERVICES = ("gateway", "perception", "prediction", "qos", "meta", "statera", "worker")
SETTING_OF = {"statera": "HMAS_U_HIGH", "worker": "HMAS_STREAM_PORT", "gateway": "HMAS_PORT"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    text: str


def faults(ended: Ended, extra: str) -> list[str]:
    """What a user would call a fault; nothing for a command that works or says in one line what to install."""
    found = []
    if "Traceback" in ended.text or "Error:" in ended.text:
        found.append("a traceback")
    if extra == CLONE and (ended.status != 1 or "needs a clone" not in ended.text):
        found.append(f"status {ended.status} without the way to a clone")
    if extra not in ("", CLONE) and (ended.status != 1 or f".whl[{extra}]'" not in ended.text):
        found.append(f"status {ended.status} without the way to hmas[{extra}]")
    if extra and extra != "mesh" and len(ended.text.strip().splitlines()) != 1:
        found.append("more than one line")
    if not extra and ended.status == USAGE_ERROR and "Usage" in ended.text:
        found.append("the arguments of this test are wrong")
    return found


def run(installed: Installed, command: Sequence[str], env: dict[str, str] | None = None) -> Ended:
    done = installed.run(*command, env=env)
    return Ended(done.returncode, done.stdout + done.stderr)


def runs(installed: Installed, commands: Sequence[Sequence[str]]) -> list[Ended]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda command: run(installed, command), commands))


def test_every_command_works_or_names_its_extra(base: Installed, tmp_path: Path) -> None:
    file = tmp_path / "file.yaml"
    file.write_text("{}\n")
    ended = runs(base, [["hmas", *arguments(words, file)] for words in COMMANDS])
    found = {
        words: (*told, end.text)
        for (words, (_, extra)), end in zip(COMMANDS.items(), ended, strict=True)
        if (told := faults(end, extra))
    }
    assert not found


def test_the_help_of_every_command_is_shown_or_names_its_extra(base: Installed) -> None:
    ended = runs(base, [["hmas", *words.split(), "--help"] for words in COMMANDS])
    for words, end in zip(COMMANDS, ended, strict=True):
        extra = COMMANDS[words][1] if end.status else RUNS
        assert not faults(end, extra), (words, end)


def test_the_list_of_commands_says_what_is_not_installed(base: Installed) -> None:
    shown = run(base, ["hmas", "--help"])
    assert shown.status == 0
    assert all(name in shown.text for name in PARTS)
    assert ".whl[sim]'" in shown.text.partition("Not installed: the Python package numpy is missing: ")[2]


def test_an_engine_needs_no_extra(base: Installed) -> None:
    assert run(base, ["python", "-m", "hmas.engine", "--help"]).status == 0


def test_a_traceback_is_found(base: Installed) -> None:
    """The check itself: a package that is missing, and nobody who says so."""
    assert "a traceback" in faults(run(base, ["python", "-c", "import numpy"]), "sim")
    assert faults(Ended(0, "fine"), "sim")


@pytest.mark.parametrize(
    ("service", "alone"), [("perception", "HMAS_PERCEPTION_BACKEND=rules"), ("prediction", "HMAS_COST_MODEL=linear")]
)
def test_a_service_without_its_extra_says_what_to_do(base: Installed, service: str, alone: str) -> None:
    ended = run(base, ["python", "-m", f"hmas.{service}"], {"HMAS_LOG_LEVEL": "error"})
    assert ended.status == os.EX_CONFIG
    (line,) = ended.text.strip().splitlines()
    assert f".whl[{service}]'" in line
    assert alone in line


def test_kv_events_without_their_extra_say_what_to_do(base: Installed) -> None:
    told = {"HMAS_POOL": "m", "HMAS_ENGINES": "http://127.0.0.1:9", "HMAS_KV_EVENTS": "tcp://{host}:5557"}
    for command, env in ((["hmas.worker"], told), (["hmas.engine", "--kv-events-config", "{}"], {})):
        ended = run(base, ["python", "-m", *command], {"HMAS_LOG_LEVEL": "error", **env})
        assert ended.status != 0
        (line,) = ended.text.strip().splitlines()
        assert ".whl[kv-events]'" in line


@pytest.mark.parametrize("service", SERVICES)
def test_a_wrong_setting_is_named_in_one_line(base: Installed, service: str) -> None:
    setting = SETTING_OF.get(service, "HMAS_OPS_PORT")
    env = {setting: "abc", "HMAS_POOL": "m", "HMAS_ENGINES": '[{"url": "http://127.0.0.1:9"}]'}
    ended = run(base, ["python", "-m", f"hmas.{service}"], env)
    assert ended.status == os.EX_CONFIG
    (line,) = ended.text.strip().splitlines()
    assert line.startswith(f"{service}: {setting}: ")


def test_up_passes_on_which_setting_is_wrong(common: Installed) -> None:
    ended = run(common, ["hmas", "up", "--port", "0", "--data-dir", "wrong"], {"HMAS_U_HIGH": "abc"})
    assert ended.status == 1
    assert [line for line in ended.text.splitlines() if line.startswith("hmas: statera: HMAS_U_HIGH: ")]
    assert "Traceback" not in ended.text
