"""Recordings: every value comes back as it was, and what is private does not leave its process."""

from math import inf, nan
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.cognition import AnswerCall, BatchReturned, CallReceived
from hmas.contracts.control import Hints, Pin, TopologyName
from hmas.contracts.control_agents import PinChanged
from hmas.contracts.routes import Role
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.contracts.worker import WorkerEffect, WorkerEvent
from hmas.laws.recording import (
    AgentOrigin,
    RecordingError,
    classes_of,
    mentions,
    origin_line,
    parse_origin,
    parse_step,
    plain,
    restored,
    role_of,
    step_line,
)
from hmas.perception.agent import PerceptionAgent
from hmas.perception.agent.agent import PerceiveItem
from hmas.perception.agent.backend import Estimate, PromptView

WORKER = classes_of(WorkerEvent, WorkerEffect)
PERCEPTION = classes_of(*get_type_hints(PerceptionAgent.step).values())


@pytest.mark.parametrize("kind", WORKER.values(), ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_every_value_a_worker_hears_or_says_comes_back(kind: type, data: st.DataObject) -> None:
    value = data.draw(st.from_type(kind))
    back = restored(plain(value), WORKER)
    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_the_classes_of_an_agent_hold_those_inside_its_events() -> None:
    assert WORKER["WorkerTelemetry"] is WorkerTelemetry
    assert {"PerceiveItem", "PromptView", "Estimate", "Tags", "TaskType", "RequestSettled"} <= set(PERCEPTION)


@pytest.mark.parametrize("number", [0.1, 1e-300, inf, -inf, 3.0])
def test_a_step_line_keeps_instants_and_kinds_of_numbers(number: float) -> None:
    event = BatchReturned(1, (Estimate("QA", number, 2.0, 3.0), None))  # type: ignore[arg-type]
    now_s, back, effects = parse_step(step_line(number, event, []), PERCEPTION)
    assert (now_s, back, effects) == (number, event, [])
    assert isinstance(back.results[0].confidence, float)


def test_no_number_stays_none() -> None:
    line = step_line(0.0, BatchReturned(1, (nan,)), [])
    assert repr(parse_step(line, PERCEPTION)[1].results[0]) == "nan"


def test_the_text_of_a_prompt_is_not_written() -> None:
    prompt = PromptView(text="my secret", prompt_tokens=3, model="m", tenant="t", max_tokens=None)
    item = PerceiveItem(request_id="r1", prompt=prompt, slo=None, slo_stated=False, importance=0.5)  # type: ignore[arg-type]
    line = step_line(0.0, CallReceived(1, (item,), 0.04), [AnswerCall(1, ())])
    assert "secret" not in line
    _, back, effects = parse_step(line, PERCEPTION)
    assert back.items[0].prompt == PromptView(text="", prompt_tokens=3, model="m", tenant="t", max_tokens=None)
    assert effects == [AnswerCall(1, ())]


def test_an_origin_comes_back() -> None:
    origin = AgentOrigin(Role.META, "m0", (Hints(), TopologyName.EDF))
    line = origin_line(origin)
    assert role_of(line) is Role.META
    assert parse_origin(line, classes_of(Hints, TopologyName)) == origin


@pytest.mark.parametrize("line", ["", "{}", "[]", '{"format": 99, "origin": {}}', '{"format": 1, "origin": {}}', "x"])
def test_what_begins_no_recording_is_refused(line: str) -> None:
    with pytest.raises(RecordingError):
        role_of(line)


@pytest.mark.parametrize(
    "line",
    ["x", "{}", "[1, 2]", '[0, {"$": "Unknown"}, []]', '[0, {"$": "CancelRequested", "bogus": 1}, []]', "[0,{},[]]"],
)
def test_a_step_that_cannot_be_read_is_refused(line: str) -> None:
    with pytest.raises(RecordingError):
        parse_step(line, WORKER)


def test_mentions_looks_into_every_corner() -> None:
    event: Any = PinChanged(Pin("p", TopologyName.EDF, by="me"))
    assert mentions(event, "me")
    assert mentions([(), (1, event)], "p")
    assert not mentions(event, "m")


def test_mentions_compares_whole_texts_alone() -> None:
    assert mentions("me", "me")
    assert not mentions("some", "me")
    assert not mentions(5, "me")
    assert not mentions((), "me")
    assert mentions(["x", {"a"}, "me"], "me")


def test_a_value_is_written_by_its_kind() -> None:
    assert plain((1, 2.5, True, None, "a", [b"ab"])) == [1, 2.5, True, None, "a", [{"$": "bytes", "value": "YWI="}]]
    assert plain(TopologyName.EDF) == {"$": "TopologyName", "value": "edf"}
    assert plain(Pin("p", None, by="me"))["$"] == "Pin"
    assert restored({"$": "bytes", "value": "YWI="}, {}) == b"ab"
    with pytest.raises((TypeError, ValueError)):
        plain(object())
    with pytest.raises(RecordingError):
        restored({"a": 1}, {})


class Half(float):
    """A number that is no built-in one, as a model returns."""


def test_any_other_number_is_written_as_one() -> None:
    assert plain(Half(0.5)) == 0.5
    assert type(plain(Half(0.5))) is float


def test_a_line_is_compact_json_with_an_end() -> None:
    assert step_line(0.5, TopologyName.EDF, [None]) == '[0.5,{"$":"TopologyName","value":"edf"},[null]]\n'
    assert origin_line(AgentOrigin(Role.META, "m", None)).startswith('{"format":1,"origin":{"$":"AgentOrigin",')


@pytest.mark.parametrize(
    "line", ['{"format": 1}', '{"format": 1, "origin": []}', '{"format": 2, "origin": {"role": 1}}', "5"]
)
def test_a_line_that_is_no_origin_is_refused(line: str) -> None:
    with pytest.raises(RecordingError, match="first line is not that of a recording"):
        parse_origin(line, {})


def test_a_line_names_the_fault_of_its_role() -> None:
    with pytest.raises(RecordingError, match="must name an agent's role"):
        role_of('{"format": 1, "origin": {"role": "meta"}}')


@pytest.mark.parametrize("line", ["[0,{},[],1]", "[0,{}]", '{"a":1}'])
def test_a_step_has_three_parts(line: str) -> None:
    with pytest.raises(RecordingError, match=r"is not .now_s, event, effects."):
        parse_step(line, WORKER)


def test_classes_are_found_at_any_depth_and_once() -> None:
    assert set(classes_of(Pin)) == {"Pin", "TopologyName", "Hints", "Split"}
    assert set(classes_of(tuple[Pin, ...] | None, int, list[Role])) == {"Pin", "TopologyName", "Hints", "Split", "Role"}
    assert set(classes_of(CallReceived[Pin])) == {"CallReceived", "Pin", "TopologyName", "Hints", "Split"}
    assert classes_of(int, str) == {}
