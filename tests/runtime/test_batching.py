"""The shell around an agent that batches calls, with an agent that does no more than pass them on."""

import asyncio
import threading
from collections import Counter as Counts
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest
from prometheus_client import CollectorRegistry, Counter, Histogram

from hmas.contracts.cognition import AnswerCall, BatchFailed, BatchReturned, CallReceived, RunBatch
from hmas.contracts.control_agents import TimerTicked
from hmas.runtime.batching import REPLY_MARGIN_S, BatchingShell
from tests.conftest import PATIENCE_S
from tests.counters import counted

Event = CallReceived[int] | BatchReturned[int] | BatchFailed | TimerTicked
Effect = RunBatch[int] | AnswerCall[int]
Model = Callable[[Sequence[int]], Sequence[int]]


class PassingAgent:
    """A batch a call; -1 for each item of a call that fails or whose timer rings before its batch is back."""

    def __init__(self) -> None:
        self.fallbacks: Counts[str] = Counts()
        self.budgets: list[float] = []
        self._open: dict[int, int] = {}

    def step(self, now_s: float, event: Event) -> list[Effect]:
        match event:
            case CallReceived(call, items, budget_s):
                self._open[call] = len(items)
                self.budgets.append(budget_s)
                return [RunBatch(call, items)]
            case BatchReturned(batch, results):
                return [AnswerCall(batch, results)] if self._open.pop(batch, None) is not None else []
            case BatchFailed(batch, _):
                return self._fall_back([batch], "failed")
            case TimerTicked():
                return self._fall_back(list(self._open), "late")

    def _fall_back(self, calls: list[int], reason: str) -> list[Effect]:
        sizes = {call: self._open.pop(call) for call in calls}
        self.fallbacks[reason] += sum(sizes.values())
        return [AnswerCall(call, (-1,) * size) for call, size in sizes.items()]


def shell_of(model: Model, budget_s: float = 30.0) -> tuple[BatchingShell[int, int, int, int], PassingAgent, Counter]:
    agent, registry = PassingAgent(), CollectorRegistry()
    fallbacks = Counter("fallbacks", "-", ["reason"], registry=registry)
    return BatchingShell(agent, model, budget_s, Histogram("s", "-", registry=registry), fallbacks), agent, fallbacks


async def test_answers_come_from_the_model_in_order() -> None:
    shell, _, _ = shell_of(lambda rows: [10 * row for row in rows])
    first, second = await asyncio.gather(shell.answers((1, 2), None), shell.answers((3,), None))
    assert (first, second) == ((10, 20), (30,))
    await shell.close()


async def test_the_model_runs_off_the_event_loop() -> None:
    shell, _, _ = shell_of(lambda rows: [threading.get_ident()])
    assert (await shell.answers((1,), None)) != (threading.get_ident(),)
    await shell.close()


async def test_a_model_that_fails_is_the_agent_s_to_answer_for() -> None:
    def broken(rows: Sequence[int]) -> list[int]:
        raise RuntimeError("no weights")

    shell, _, fallbacks = shell_of(broken)
    await shell.warm_up(0)
    assert await shell.answers((1, 2), None) == (-1, -1)
    assert await shell.answers((3,), None) == (-1,)
    assert counted(fallbacks.labels("failed")) == 3.0
    await shell.close()


async def test_a_call_at_which_the_agent_raises_fails_alone() -> None:
    shell, agent, _ = shell_of(lambda rows: rows)
    step = agent.step

    def faulty(now_s: float, event: Event) -> list[Effect]:
        if isinstance(event, CallReceived) and event.items == (2,):
            raise ArithmeticError("odd")
        return step(now_s, event)

    agent.step = faulty  # type: ignore[method-assign]
    async with asyncio.timeout(PATIENCE_S):
        answers = await asyncio.gather(*(shell.answers((n,), None) for n in (1, 2, 3)), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["(1,)", "odd", "(3,)"]
    await shell.close()


async def test_a_stuck_model_is_answered_for_when_the_budget_is_over() -> None:
    release = threading.Event()

    def stuck(rows: Sequence[int]) -> Sequence[int]:
        release.wait()
        return rows

    shell, _, fallbacks = shell_of(stuck, budget_s=0.01)
    try:
        assert await shell.answers((1,), None) == (-1,)
    finally:
        release.set()
    assert counted(fallbacks.labels("late")) == 1.0
    await shell.close()


@pytest.mark.parametrize(
    ("remaining_s", "budget_s"), [(None, 30.0), (60.0, 30.0), (10.0, 10.0 - REPLY_MARGIN_S), (0.001, 0.0)]
)
async def test_the_caller_s_deadline_shortens_the_budget(remaining_s: float | None, budget_s: float) -> None:
    shell, agent, _ = shell_of(lambda rows: rows)
    await shell.answers((1,), remaining_s)
    assert agent.budgets == [pytest.approx(budget_s)]
    await shell.close()


async def test_a_caller_that_left_is_forgotten() -> None:
    release = threading.Event()

    def slow(rows: Sequence[int]) -> Sequence[int]:
        release.wait()
        return rows

    shell, _, _ = shell_of(slow)
    call = asyncio.create_task(shell.answers((1,), None))
    await asyncio.sleep(0)
    call.cancel()
    with suppress(asyncio.CancelledError):
        await call
    release.set()
    assert await shell.answers((2,), None) == (2,)
    await shell.close()
