"""A worker reports which engine computed the prompt of a request that ended, and when."""

import pytest

from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import SplitLegs, WorkerTelemetry
from hmas.contracts.worker import CycleTicked, PublishTelemetry, WorkerEffect
from hmas.wire.codec import from_message, to_message
from tests.worker.builders import Scripted, request
from tests.worker.test_split_requests import P, prefilled, two


def reported(agent: Scripted, effects: list[WorkerEffect], now_s: float) -> SplitLegs | None:
    """Returns the legs of the one request that ended."""
    every = [*effects, *agent.step(now_s, CycleTicked())]
    [telemetry] = [each.telemetry for each in every if isinstance(each, PublishTelemetry)]
    assert from_message(WorkerTelemetry, to_message(telemetry)) == telemetry
    assert "legs" not in repr(telemetry)
    [ended] = telemetry.finished
    return ended.legs


@pytest.mark.parametrize(("computed_s", "first_s"), [(0.25, 0.5), (0.25, None), (None, None)])
def test_both_legs_of_a_request_are_reported_as_far_as_they_came(
    computed_s: float | None, first_s: float | None
) -> None:
    agent = two()
    agent.submit(1.0, request(arrival_s=1.0))
    if computed_s is not None:
        prefilled(agent, 1.0 + computed_s)
    if first_s is not None:
        agent.first_token(1.0 + first_s, "r1")
    ended = agent.say(3.0, Ended(request_id="r1", grant=1, outcome=Outcome.FINISHED, output_tokens=5))
    assert reported(agent, ended, 3.5) == SplitLegs(prefill_engine=P, computed_s=computed_s, first_s=first_s)


def test_a_run_that_was_lost_leaves_no_leg() -> None:
    """The prompt was computed, but could not be read; the other engine serves the request whole."""
    agent = two()
    agent.submit(0.0, request())
    prefilled(agent, 0.2)
    agent.fail(0.3, "r1", at_prefill=True)
    agent.first_token(0.5, "r1")
    assert reported(agent, agent.finish(1.0, "r1", 20), 1.5) is None
    assert agent.state.queue.get("r1") is None


def test_a_prompt_that_is_computed_anew_counts_from_its_own_grant() -> None:
    agent = two()
    agent.submit(0.0, request())
    prefilled(agent, 0.2)
    agent.fail(0.3, "r1", busy=True)
    entry = agent.state.queue.get("r1")
    assert entry is not None
    assert entry.computed_s is None


def test_of_one_engine_no_legs_are_reported() -> None:
    agent = two("never")
    agent.submit(0.0, request())
    assert reported(agent, agent.finish(1.0, "r1", 20), 1.5) is None
