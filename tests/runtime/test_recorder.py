"""The ring and the file of the live host's recorder."""

import json
from pathlib import Path
from typing import Any

import pytest

from hmas.contracts.cognition import AnswerCall, BatchReturned, CallReceived, RunBatch
from hmas.contracts.execution import Ended, Stop, Withdraw
from hmas.contracts.outcome import Outcome
from hmas.contracts.routes import Role
from hmas.contracts.worker import CycleTicked, FromGateway, ToGateway
from hmas.laws.recording import AgentOrigin, classes_of, parse_origin, parse_step
from hmas.runtime import recorder as recorder_module
from hmas.runtime.host import AgentHost, raise_it
from hmas.runtime.recorder import Recorder
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.v1 import observe_pb2 as pb

ORIGIN = AgentOrigin(Role.WORKER, "w0", None)


def withdrawn(request_id: str, attempt: int = 1) -> FromGateway:
    return FromGateway("g", Withdraw(request_id, attempt))


def ended(request_id: str) -> FromGateway:
    return FromGateway("g", Ended(request_id=request_id, grant=1, outcome=Outcome.FINISHED))


def stop(request_id: str) -> ToGateway:
    return ToGateway("g", Stop(request_id, 1, "why"))


def recorder(**settings: Any) -> Recorder:
    return Recorder(ORIGIN, RuntimeSettings(**settings), lambda: 100.0)


async def asked(of: Recorder, request_id: str) -> pb.EffectsReply:
    answer = await of.answer(pb.EffectsRequest(request_id=request_id).SerializeToString())
    assert answer is not None
    return pb.EffectsReply.FromString(answer)


class Echo:
    """Two effects an event; the shell's answer to the first is another event."""

    def step(self, now_s: float, event: int) -> list[int]:
        return [event, -event]


def test_the_host_shows_each_step_before_its_effects() -> None:
    seen: list[object] = []
    times = iter((1.0, 2.0))

    def execute(effect: int) -> None:
        seen.append(effect)
        if effect == 5:
            host.post(6)

    host: AgentHost[int, int] = AgentHost(
        Echo(), execute, lambda: next(times), failed=raise_it, observe=lambda *step: seen.append(step)
    )
    host.post(5)
    assert seen == [(1.0, 5, [5, -5]), 5, -5, (2.0, 6, [6, -6]), 6, -6]


async def test_a_reply_holds_what_concerns_the_request_and_no_more() -> None:
    one = recorder()
    one.observe(90.0, CycleTicked(), [])
    one.observe(91.0, withdrawn("a"), [stop("a"), stop("b")])
    one.observe(92.0, ended("b"), [stop("a")])
    one.observe(94.0, withdrawn("b"), [])
    reply = await asked(one, "a")
    assert (reply.role, reply.name, reply.since_s, reply.left_out) == ("worker", "w0", 10.0, 0)
    assert [step.age_s for step in reply.steps] == [9.0, 8.0]
    events = [json.loads(step.event_json) for step in reply.steps]
    assert [event["message"]["$"] for event in events] == ["Withdraw", "Ended"]
    stopped = [
        {"$": "ToGateway", "gateway": "g", "message": {"$": "Stop", "request_id": "a", "grant": 1, "reason": "why"}}
    ]
    assert [json.loads(s.effects_json) for s in reply.steps] == [stopped, stopped]


async def test_the_ring_forgets_its_oldest_steps() -> None:
    one = recorder(record_steps=2)
    for at in range(4):
        one.observe(float(at), withdrawn("a", at), [])
    reply = await asked(one, "a")
    assert [json.loads(s.event_json)["message"]["attempt"] for s in reply.steps] == [2, 3]
    assert reply.since_s == 98.0


async def test_a_reply_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder_module, "MAX_REPLY_BYTES", 300)
    one = recorder()
    for at in range(10):
        one.observe(float(at), withdrawn("a", at), [])
    reply = await asked(one, "a")
    assert 0 < len(reply.steps) < 10
    assert len(reply.steps) + reply.left_out == 10
    assert reply.ByteSize() < 400


async def test_a_malformed_question_is_left_unanswered() -> None:
    assert await recorder().answer(b"\xff\xff") is None


def lines_in(folder: Path) -> list[str]:
    (path,) = folder.iterdir()
    assert path.stat().st_mode & 0o077 == 0
    return path.read_text().splitlines(keepends=True)


def test_a_file_holds_every_step_from_the_start_at_once(tmp_path: Path) -> None:
    one = recorder(record_dir=tmp_path / "new", record_steps=0)
    one.observe(1.5, ended("a"), [stop("a")])
    first, step = lines_in(tmp_path / "new")  # before it is closed
    one.close()
    classes = classes_of(FromGateway, ToGateway, Outcome)
    assert parse_origin(first, classes) == ORIGIN
    assert parse_step(step, classes) == (1.5, ended("a"), [stop("a")])


def test_a_file_ends_at_its_bound_with_a_whole_line(tmp_path: Path) -> None:
    one = recorder(record_dir=tmp_path, record_max_bytes=2**16)
    for at in range(2000):
        one.observe(float(at), withdrawn("a", at), [])
    lines = lines_in(tmp_path)
    assert 2**16 - 100 < sum(map(len, lines)) <= 2**16
    assert lines[-1].endswith("]\n")
    one.close()


def test_what_cannot_be_written_ends_the_file_and_not_the_service(tmp_path: Path) -> None:
    one = recorder(record_dir=tmp_path)
    one.observe(0.0, CallReceived(1, (object(),), 0.1), [RunBatch(1, ())])
    one.observe(1.0, BatchReturned(1, ()), [AnswerCall(1, ())])
    assert len(lines_in(tmp_path)) == 1
