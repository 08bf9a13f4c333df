"""Recordings of simulated agents, replayed."""

from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hmas.contracts.control_agents import QosEffect, QosEvent
from hmas.contracts.routes import Role
from hmas.laws.recording import RecordingError, classes_of, parse_step, step_line
from hmas.sim.faults import Fault, FaultKind
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.recordings import AGENTS, RecordingFolder, replay
from hmas.sim.setup import MeshSetup
from hmas.worker.agent import WorkerAgent
from hmas_lab.sim.cli import app
from hmas_lab.sim.systems import NOISY
from tests.sim.sim_cases import SMALL, random_workload

NAMES = ("g0", "w0", "w1", "perception", "prediction", "qos", "meta", "statera")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    with closing(RecordingFolder(folder)) as recording:
        MeshSim(replace(NOISY, workers=2), SMALL, 2, random_workload(5, 14.0, 8.0), 3, recording=recording).run()
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_a_fresh_agent_takes_the_same_steps(recorded: Path, name: str) -> None:
    done = replay(recorded / f"{name}.jsonl")
    assert done.difference is None
    assert done.origin.name == name
    assert done.steps > 10
    assert done.effects > 2
    shown = CliRunner().invoke(app, ["replay-log", str(recorded / f"{name}.jsonl")])
    assert (shown.exit_code, "all equal" in shown.output) == (0, True)


def test_every_agent_of_the_mesh_is_recorded(recorded: Path) -> None:
    assert {path.stem for path in recorded.iterdir()} == set(NAMES)


def test_another_constant_shows_the_first_effect_that_differs(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cls, configs, _ = AGENTS[Role.WORKER]
    other = (cls, configs, lambda o: WorkerAgent(replace(o.config, delta_frag=0.9)))
    monkeypatch.setitem(AGENTS, Role.WORKER, other)
    path = recorded / "w0.jsonl"
    first = replay(path).difference
    assert first is not None
    assert first.step > 1
    assert first.expected != first.got
    shown = CliRunner().invoke(app, ["replay-log", str(path)])
    assert shown.exit_code == 1
    told = [f"step {first.step} at {first.now_s!r} s", f"event: {first.event}"]
    told += [f"{name}: {value or 'nothing'}" for name, value in (("expected", first.expected), ("got", first.got))]
    for line in told:
        assert line in shown.output


def test_an_effect_too_many_and_one_too_few_are_differences(recorded: Path, tmp_path: Path) -> None:
    lines = (recorded / "qos.jsonl").read_text().splitlines(keepends=True)
    number = next(i for i, line in enumerate(lines) if i and not line.endswith(",[]]\n"))
    now_s, event, effects = parse_step(lines[number], classes_of(QosEvent, QosEffect))
    for changed in ([], [*effects, *effects]):
        path = tmp_path / "qos.jsonl"
        path.write_text("".join([*lines[:number], step_line(now_s, event, changed), *lines[number + 1 :]]))
        first = replay(path).difference
        assert first is not None
        assert (first.step, first.now_s) == (number, now_s)
        assert (first.expected is None) == (changed == [])
        assert (first.got is None) == (changed != [])


def test_a_line_cut_short_ends_the_recording(recorded: Path, tmp_path: Path) -> None:
    text = (recorded / "meta.jsonl").read_text()
    path = tmp_path / "meta.jsonl"
    path.write_text(text[:-20])
    done, whole = replay(path), replay(recorded / "meta.jsonl")
    assert done.difference is None
    assert done.steps == whole.steps - 1


def test_what_is_no_recording_is_refused_plainly(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n")
    with pytest.raises(RecordingError):
        replay(path)
    shown = CliRunner().invoke(app, ["replay-log", str(path)])
    assert shown.exit_code == 2
    assert "is not that of a recording" in " ".join(shown.output.replace("│", " ").split())


def test_the_config_of_a_recording_is_the_agent_s(recorded: Path) -> None:
    origin = replay(recorded / "w1.jsonl").origin
    assert {f.name for f in fields(origin.config)} >= {"worker", "delta_frag"}
    assert origin.config.worker == "w1"


def test_a_process_that_comes_back_has_a_recording_of_its_own(tmp_path: Path) -> None:
    faults = tuple(Fault(at_s=3.0, kind=FaultKind.RESTART, target=name, until_s=4.0) for name in ("w0", "g1"))
    with closing(RecordingFolder(tmp_path)) as recording:
        setup = MeshSetup(workers=2, gateways=2, faults=faults)
        MeshSim(setup, SMALL, 2, random_workload(5, 14.0, 8.0), 3, recording=recording).run()
    for name in ("w0", "w0-2", "g1", "g1-2"):
        done = replay(tmp_path / f"{name}.jsonl")
        assert (done.difference, done.origin.name) == (None, name)
        assert done.steps > 10
