"""The process around a control agent goes on when a step of its agent fails."""

from dataclasses import dataclass
from typing import Any

import structlog

from hmas.contracts.control_agents import EpochLost, TimerTicked
from hmas.contracts.routes import Role
from hmas.laws.recording import AgentOrigin
from hmas.runtime.agent_service import STEP_FAILURES, AgentService
from hmas.runtime.host import AgentHost
from hmas.runtime.logs import Sparingly
from hmas.runtime.settings import RuntimeSettings


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
    assert STEP_FAILURES.labels("TimerTicked")._value.get() == 5
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


def test_lines_of_one_kind_are_logged_sparingly_and_the_others_counted() -> None:
    now = [0.0]
    sparingly = Sparingly(10.0, lambda: now[0])
    assert [sparingly.due("a"), sparingly.due("a"), sparingly.due("b"), sparingly.due("a")] == [0, None, 0, None]
    now[0] = 10.0
    assert [sparingly.due("a"), sparingly.due("a")] == [2, None]
