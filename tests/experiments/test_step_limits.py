"""What a step of each system's engines holds at most is read from the systems, not written into the pages."""

from pathlib import Path
from types import SimpleNamespace

from experiments.report.markdown import step_limits
from hmas_lab.sim.cli import load


def test_limits_that_differ_from_the_profile_are_told_once_for_each_pair() -> None:
    experiment = load(Path("experiments/overload.yaml"))
    found = step_limits(SimpleNamespace(experiment=experiment))  # type: ignore[arg-type]
    assert found == [
        "vLLM (FCFS), Dynamo's order (re-implemented), llm-d's order (re-implemented): 1024 and 1024",
        "SGLang (FCFS): 8192 and 4096",
        "Niyama, H-MAS with the vLLM plug-in: 2560 and 256",
    ]
