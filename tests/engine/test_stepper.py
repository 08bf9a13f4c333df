"""The step loop on a loop whose turns the test takes itself."""

from collections.abc import Callable
from typing import Any, cast

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import builtin_profile
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.metrics import EngineTelemetry
from hmas.engine.shell import SLICE, Stepper


class Turns:
    """An event loop as far as the stepper knows one: calls wait until they are made."""

    def __init__(self) -> None:
        self.soon: list[Callable[[], None]] = []
        self.timers: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[..., None], *args: object) -> None:
        self.soon.append(lambda: callback(*args))

    def call_later(self, _: float, callback: Callable[[], None]) -> object:
        self.timers.append(callback)
        return callback

    def end_step(self) -> None:
        self.timers.pop(0)()

    def rest(self) -> None:
        while self.soon:
            self.soon.pop(0)()


class Sink:
    def __init__(self, name: str, log: list[str]) -> None:
        self._name, self._log = name, log

    def scheduled(self, now_s: float) -> None:
        self._log.append(f"{self._name} scheduled")

    def cached(self, tokens: int) -> None:
        pass

    def preempted(self, now_s: float) -> None:
        raise AssertionError("there is memory enough")

    def token(self, now_s: float) -> None:
        self._log.append(self._name)

    def give_up(self) -> None:
        self._log.append(f"{self._name} given up")


def stepper() -> tuple[Stepper, Turns, list[str]]:
    turns, core = Turns(), EngineCore(builtin_profile("steady"))
    return Stepper(core, cast(Any, turns), EngineTelemetry(core, "m")), turns, []


def submit(made: Stepper, log: list[str], name: str, tokens: int) -> None:
    assert made.submit(EngineRequest(name, 16, tokens), Sink(name, log)) is AddResult.ACCEPTED


def submit_many(made: Stepper, log: list[str], tokens: int) -> None:
    """`first`, then two slices of others."""
    submit(made, log, "first", 9)
    for number in range(2 * SLICE):
        submit(made, log, f"r{number}", tokens)


def test_the_loop_gets_its_turn_between_slices_and_what_comes_then_waits_for_the_step_after_next() -> None:
    """Otherwise a request is stamped when the last token of the batch is written, long after its bytes came."""
    made, turns, log = stepper()
    submit_many(made, log, 9)
    turns.end_step()
    turns.end_step()
    names = {"first", *(f"r{number}" for number in range(2 * SLICE))}
    turns.rest()
    log.clear()
    turns.end_step()
    assert len(log) == SLICE
    submit(made, log, "late", 9)
    turns.rest()
    assert len(log) == len(names)
    assert set(log) == names
    log.clear()
    turns.end_step()
    assert log[0] == "late scheduled"


def test_a_step_that_ends_before_all_is_written_writes_the_rest_first() -> None:
    made, turns, log = stepper()
    submit_many(made, log, 2)
    for _ in range(3):
        turns.end_step()
    turns.rest()
    tokens = [name for name in log if "scheduled" not in name]
    assert tokens.count("first") == 3
    assert all(tokens.count(f"r{number}") == 2 for number in range(2 * SLICE))
    assert made.lag.count == 3


def test_what_was_aborted_while_others_were_written_gets_no_more_tokens() -> None:
    made, turns, log = stepper()
    submit_many(made, log, 9)
    turns.end_step()
    turns.rest()
    log.clear()
    turns.end_step()  # newest first: the oldest are written last
    assert len([name for name in log if "scheduled" not in name]) == SLICE
    made.abort("r0")
    turns.rest()
    assert "r0" not in log
    assert "r1" in log
