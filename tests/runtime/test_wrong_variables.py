"""A variable of ours that nothing reads is named at the start, with advice."""

import os
import re
import subprocess
import sys

import pytest

from docs.services import SERVICE_SETTINGS
from hmas.runtime.setting_names import SETTINGS
from hmas.runtime.settings import REMOVED, RENAMED, TOOLS, wrong_variables
from tests.house.repository import written

NO_VARIABLES = {"HMAS_AUDIT", "HMAS_GAINS", "HMAS_STREM_PORT"}  # names of streams, and a misspelt one that tests use


def test_every_setting_of_every_service_is_known() -> None:
    fields = {f"HMAS_{name}".upper() for settings in SERVICE_SETTINGS.values() for name in settings.model_fields}
    assert fields == SETTINGS
    assert SETTINGS.isdisjoint(REMOVED)
    assert SETTINGS.isdisjoint(TOOLS)
    assert {new for names in RENAMED.values() for new in names.values()} <= SETTINGS
    assert wrong_variables(dict.fromkeys(SETTINGS | TOOLS, "x"), "worker") == {}


def test_every_variable_that_the_repository_reads_is_known() -> None:
    found = {
        name
        for path, text in written(".py", ".yml", ".yaml", "Makefile", "Dockerfile", ".ci/run")
        if path != "tests/runtime/test_wrong_variables.py"
        for name in re.findall(r"\bHMAS_[A-Z][A-Z_]*[A-Z]\b", text)
    }
    assert len(found) > 60
    assert found - SETTINGS - TOOLS - REMOVED.keys() - NO_VARIABLES == set()


@pytest.mark.parametrize(
    ("variable", "service", "advice"),
    [
        ("HMAS_STREM_PORT", "", "there is no such setting: did you mean HMAS_STREAM_PORT?"),
        ("hmas_max_queud", "worker", "there is no such setting: did you mean HMAS_MAX_QUEUED?"),
        ("HMAS_ZZZZZZZZ", "", "there is no such setting"),
        ("HMAS_STREAM_GRACE_S", "gateway", f"it was removed: {REMOVED['HMAS_STREAM_GRACE_S']}"),
        ("HMAS_GRPC_PORT", "worker", "it is called HMAS_STREAM_PORT now"),
    ],
)
def test_what_nothing_reads_is_named_with_advice(variable: str, service: str, advice: str) -> None:
    assert wrong_variables({variable: "1", "HMAS_POOL": "m", "PATH": "/bin"}, service) == {variable: advice}


def test_an_old_name_beside_the_new_one_is_that_of_another_service() -> None:
    assert wrong_variables({"HMAS_GRPC_PORT": "1", "HMAS_STREAM_PORT": "2"}, "worker") == {}
    assert wrong_variables({"HMAS_GRPC_PORT": "1"}, "perception") == {}


def test_a_service_says_so_when_it_starts() -> None:
    planted = {"HMAS_MAX_QUEUD": "5", "HMAS_GATEWAY_GRACE_S": "5", "HMAS_ENGINES": "http://127.0.0.1:9"}
    quiet = {name: value for name, value in os.environ.items() if not name.startswith("HMAS_")}
    environment = {**quiet, **planted, "HMAS_POOL": "m", "HMAS_NATS_URL": "nats://127.0.0.1:9"}
    told = []
    with subprocess.Popen(
        [sys.executable, "-m", "hmas.worker"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            told += [name for name in planted if "unknown_setting" in line and name in line]
            if len(told) == 2:
                break
        process.kill()
    assert told == ["HMAS_GATEWAY_GRACE_S", "HMAS_MAX_QUEUD"]
