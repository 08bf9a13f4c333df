"""The plug-in keeps its contract on every vLLM version it supports."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.engines.environment import OLDER, VERSION, EngineEnvironment

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]
SCRIPT = Path(__file__).with_name("scheduler_contract.py")


@pytest.mark.parametrize("version", [VERSION, *OLDER])
def test_contract(environment: EngineEnvironment, version: str) -> None:
    run = subprocess.run(
        ["nice", "-n", "10", str(environment.python), str(SCRIPT), str(environment.model)],
        env=environment.env(version) | {"VLLM_LOGGING_LEVEL": "ERROR"},
        capture_output=True, text=True, timeout=880, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-3000:]
    results: dict[str, str] = json.loads(run.stdout.splitlines()[-1])
    assert results.pop("version").startswith(version)
    failed = {case: trace for case, trace in results.items() if trace != "ok"}
    assert not failed, "\n\n".join(f"{case}\n{trace}" for case, trace in failed.items())
    assert len(results) == 18
