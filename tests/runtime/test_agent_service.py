"""The process around a control agent goes on when a step of its agent fails."""

from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from hmas.contracts.control_agents import EpochLost, TimerTicked
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.runtime.agent_service import AgentService
from hmas.runtime.host import AgentHost, raise_it
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.settings import RuntimeSettings
from hmas.runtime.step_failures import STEP_FAILURES
from tests.counters import counted


@dataclass
class Faulty:
    """An agent that fails at every timer, and whose effect of any other event is that event."""

    def step(self, now_s: float, event: Any) -> list[Any]:
        if isinstance(event, TimerTicked):
            raise OverflowError("int too large to convert")
        return [event]


async def test_a_step_that_raises_is_logged_and_counted_and_the_next_event_follows() -> None:
    done: list[Any] = []
    service: AgentService[Any, Any] = AgentService(
        AgentOrigin(Role.QOS, "qos", None), RuntimeSettings(), Faulty(), done.append
    )
    with structlog.testing.capture_logs() as logs:
        for _ in range(5):
            service.post(TimerTicked())
        service.post(EpochLost())
    assert done == [EpochLost()]
    assert counted(STEP_FAILURES.labels("TimerTicked")) == 5
    assert [(entry["event"], entry["event_type"]) for entry in logs] == [("step_failed", "TimerTicked")]
    assert isinstance(logs[0]["exc_info"], OverflowError)


def test_an_effect_that_fails_does_not_keep_back_what_was_posted_meanwhile() -> None:
    done: list[Any] = []

    def execute(effect: int) -> None:
        if effect == 1:
            host.post(2)
            raise OSError("no space left on device")
        done.append(effect)

    class Echo:
        def step(self, now_s: float, event: int) -> list[int]:
            return [event]

    host: AgentHost[int, int] = AgentHost(Echo(), execute, failed=lambda event, error: done.append((event, str(error))))
    host.post(1)
    assert done == [(1, "no space left on device"), 2]


class Counting:
    """An agent whose effects are the numbers below an event."""

    def step(self, now_s: float, event: int) -> list[int]:
        return list(range(event))


def odd_is_refused(done: list[Any]) -> Any:
    def execute(effect: int) -> None:
        if effect % 2:
            raise OSError(effect)
        done.append(effect)

    return execute


def test_an_effect_that_fails_costs_none_of_the_later_ones() -> None:
    done: list[Any] = []
    host: AgentHost[int, int] = AgentHost(
        Counting(), odd_is_refused(done), failed=lambda cause, error: done.append((cause, str(error)))
    )
    host.post(5)
    assert done == [0, (1, "1"), 2, (3, "3"), 4]


def test_effects_are_carried_out_even_if_they_cannot_be_recorded() -> None:
    done: list[Any] = []

    def observe(now_s: float, event: int, effects: list[int]) -> None:
        raise TypeError(event)

    host: AgentHost[int, int] = AgentHost(
        Counting(), done.append, failed=lambda cause, error: done.append(("failed", cause)), observe=observe
    )
    host.post(2)
    assert done == [("failed", 2), 0, 1]


def test_a_test_is_told_of_the_first_failure_and_may_go_on() -> None:
    done: list[Any] = []
    host: AgentHost[int, int] = AgentHost(Counting(), odd_is_refused(done), failed=raise_it)
    with pytest.raises(OSError, match="1"):
        host.post(5)
    host.post(1)
    assert done == [0, 0]


def test_lines_of_one_kind_are_logged_sparingly_and_the_others_counted() -> None:
    now = [0.0]
    sparingly = LogRateLimit(10.0, lambda: now[0])
    assert [sparingly.due("a"), sparingly.due("a"), sparingly.due("b"), sparingly.due("a")] == [0, None, 0, None]
    now[0] = 10.0
    assert [sparingly.due("a"), sparingly.due("a")] == [2, None]
