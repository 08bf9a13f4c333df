"""When a run counts as stalled: a hung engine is found out within its bound, a slow one is never cut off."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.execution import Ended, EngineShare, Submit
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    RunHandedOver,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent import GatewayConfig
from hmas.gateway.agent.config import FailOpenConfig, StallConfig
from tests.conftest import examples
from tests.gateway.gateway_script import Mesh, load, run_ended

STALLS = StallConfig()
TICK_S = 0.25


class Watched(Mesh):
    """A gateway with one engine whose worker reports once a second what the engine's own counters do (`generating`).
    `stops` holds every run that was given up, with its instant."""

    def __init__(self, *, generating: bool | None = False, config: GatewayConfig | None = None) -> None:
        super().__init__("w1", config=config or GatewayConfig(gateway="g", request_timeout_s=1e6))
        self.generating = generating
        self.stops: list[tuple[float, StopRun]] = []
        self.effects: list[GatewayEffect] = []
        self._reported_s = -inf

    def wait(self, seconds: float, tick_s: float = TICK_S) -> None:
        """Lets time pass, tick by tick."""
        until_s = self.now_s + seconds
        while self.now_s < until_s - 1e-9:
            if self.now_s - self._reported_s >= 1.0:
                self._reported_s = self.now_s
                self.play(FromWorker("w1", load(EngineShare("e1", 8, self.generating))))
            effects = self.tick(min(tick_s, until_s - self.now_s))
            self.effects += effects
            self.stops += [(self.now_s, e) for e in effects if isinstance(e, StopRun)]

    def begin(self, request_id: str, **changes: object) -> int:
        self.receive(request_id, **changes)
        return self.grant(request_id)

    def first(self, request_id: str, run: int) -> None:
        self.play(FirstTokenRelayed(request_id, run))

    def tokens(self, request_id: str, count: int) -> None:
        self.play(RunsProgressed(((request_id, count),)))

    def answer(self, request_id: str, first_s: float, step_s: float, tokens: int = 4, **changes: object) -> None:
        """A request that is streamed to its end at this pace."""
        run = self.begin(request_id, **changes)
        self.wait(first_s)
        self.first(request_id, run)
        for count in range(2, tokens + 1):
            self.wait(step_s)
            self.tokens(request_id, count)
        self.play(run_ended(request_id, run, output_tokens=tokens))

    def ended(self) -> list[Ended]:
        return [e.message for e in self.effects if isinstance(e, ToWorker) and isinstance(e.message, Ended)]


# --- hung engines ---


def test_an_engine_that_never_answered_is_given_its_time_and_no_more() -> None:
    m = Watched()
    m.begin("r1")
    m.wait(STALLS.unknown_s)
    assert not m.stops
    m.wait(1.0)
    ((_, stop),) = m.stops
    assert stop.stalled
    (ended,) = m.ended()
    assert (ended.retryable, ended.stalled, ended.outcome) == (True, True, Outcome.ENGINE_ERROR)
    assert not [e for e in m.effects if isinstance(e, Settle)]  # it waits at its worker again


def test_before_its_first_token_a_run_moves_elsewhere_and_afterwards_it_ends() -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    m.begin("waits")
    run = m.begin("streams")
    m.first("streams", run)
    m.wait(STALLS.least_s - 1.0)
    assert not m.stops
    m.wait(2.0)
    assert {stop.request_id for _, stop in m.stops} == {"waits", "streams"}
    by_id = {ended.request_id: ended for ended in m.ended()}
    assert (by_id["waits"].retryable, by_id["streams"].retryable) == (True, False)
    (settled,) = [e for e in m.effects if isinstance(e, Settle)]
    assert (settled.request_id, settled.outcome) == ("streams", Outcome.ENGINE_ERROR)
    assert "gave no token for 30 s" in settled.message


def test_a_run_that_may_wait_for_others_is_given_ten_times_as_long() -> None:
    for generating in (True, None):  # the engine serves others, or nobody can tell
        m = Watched(generating=generating)
        m.answer("warm", 0.5, 0.25)
        m.begin("r1")
        m.wait(STALLS.starved * STALLS.least_s)
        assert not m.stops
        m.wait(1.0)
        assert len(m.stops) == 1


def test_tokens_of_this_gateways_own_runs_show_that_an_engine_lives() -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    m.begin("waits")
    run = m.begin("streams")
    m.first("streams", run)
    for count in range(2, 100):
        m.wait(1.0)
        m.tokens("streams", count)
    assert not m.stops


def test_an_answer_that_is_not_streamed_is_judged_by_the_engines_counters() -> None:
    m = Watched(generating=True)
    m.answer("warm", 0.5, 0.25)
    m.begin("r1", stream=False)
    m.wait(1000.0)
    assert not m.stops
    m.generating = False
    m.wait(STALLS.least_s - 1.0)
    assert not m.stops
    m.wait(3.0)
    assert len(m.stops) == 1
    assert m.ended()[0].retryable


def test_an_answer_that_is_not_streamed_is_judged_by_its_greatest_length_too() -> None:
    m = Watched(generating=True)
    m.answer("warm", 0.5, 0.25)
    m.begin("r1", stream=False, max_tokens=10)
    bound_s = STALLS.factor * (0.5 + 10 * 0.25)
    m.wait(bound_s)
    assert not m.stops
    m.wait(1.0)
    assert len(m.stops) == 1


def test_whether_an_answer_that_is_not_streamed_has_begun_cannot_be_seen() -> None:
    """So that it may wait for its first token or for a further one."""
    m = Watched()
    m.answer("warm", 0.5, 5.0)
    m.begin("r1", stream=False)
    m.wait(STALLS.factor * 5.0)
    assert not m.stops
    m.wait(1.0)
    assert len(m.stops) == 1


def test_what_waited_before_the_engine_stood_still_is_not_held_against_it() -> None:
    m = Watched(generating=True)
    m.answer("warm", 0.5, 0.25)
    m.begin("r1")
    m.wait(100.0)
    m.generating = False
    m.wait(STALLS.least_s - 1.0)
    assert not m.stops
    m.wait(3.0)
    assert len(m.stops) == 1


def test_a_worker_that_falls_silent_proves_nothing() -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    m.begin("r1")
    m.wait(STALLS.least_s - 5.0)
    m.play(StreamChanged("w1", False))
    for _ in range(400):
        assert not [e for e in m.tick(TICK_S) if isinstance(e, StopRun)]


def test_time_in_which_the_gateway_was_stopped_counts_for_nobody() -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    run = m.begin("r1")
    m.wait(10.0)
    assert not [e for e in m.tick(1000.0) if isinstance(e, StopRun)]
    m.wait(STALLS.least_s - 15.0)
    assert not m.stops
    m.first("r1", run)
    m.wait(STALLS.least_s + 2.0)
    assert len(m.stops) == 1


def test_in_bypass_a_stalled_run_goes_elsewhere() -> None:
    config = GatewayConfig(
        gateway="g", stalls=StallConfig(unknown_s=1.0, least_s=1.0, starved=2.0), fail_open=FailOpenConfig(after_s=0.5)
    )
    m = Watched(config=config)
    m.play(StreamChanged("w1", False))
    m.now_s += 1.0
    started = [e for e in m.receive("r1") + m.tick(0.1) if isinstance(e, StartRun)]
    assert started[0].grant is None
    effects: list[GatewayEffect] = []
    for _ in range(12):
        effects += m.tick(TICK_S)
    assert [e.request_id for e in effects if isinstance(e, StopRun)] == ["r1"]
    assert not [e for e in effects if isinstance(e, Settle)]


def test_the_request_waits_at_its_worker_under_the_same_attempt() -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    m.begin("r1")
    m.wait(STALLS.least_s + 1.0)
    assert not [e for e in m.effects if isinstance(e, ToWorker) and isinstance(e.message, Submit)]
    assert m.grant("r1") > 0  # the worker grants it again


# --- slow engines ---


def test_an_engine_as_slow_as_engines_are_is_never_cut_off() -> None:
    """100 s of prefill and 5 s a token, from the first request on."""
    m = Watched()
    for i in range(5):
        m.answer(f"r{i}", 100.0, 5.0, tokens=6)
    assert not m.stops


def test_a_prompt_far_longer_than_usual_is_given_more() -> None:
    m = Watched()
    for i in range(5):
        m.answer(f"r{i}", 1.0, 0.25, prompt_tokens=1_000)
    m.begin("long", prompt_tokens=100_000)
    m.wait(1_000.0)
    assert not m.stops
    m.wait(1_001.0)
    assert len(m.stops) == 1


def test_prompts_that_were_cached_do_not_make_an_engine_look_faster_than_it_is() -> None:
    m = Watched()
    for i in range(5):
        run = m.begin(f"r{i}", prompt_tokens=10_000)
        m.wait(1.0)
        m.first(f"r{i}", run)
        m.play(run_ended(f"r{i}", run, cached_tokens=9_900))
    m.begin("long", prompt_tokens=10_000)
    m.wait(1_000.0)
    assert not m.stops


PACES = st.floats(0.05, 80.0)  # three times that and nine steps, all of a first answer, stay below `unknown_s`


@settings(max_examples=examples(60))
@given(
    first_s=PACES,
    step_s=st.floats(0.01, 5.0),
    varied=st.lists(st.floats(1 / 3, 3.0), min_size=12, max_size=12),
    generating=st.sampled_from([False, None, True]),
    streams=st.lists(st.booleans(), min_size=3, max_size=3),
)
def test_no_pace_is_too_slow(
    first_s: float, step_s: float, varied: list[float], generating: bool | None, streams: list[bool]
) -> None:
    """Of an engine whose first answer comes within `unknown_s`, even if its own counters show nothing."""
    m = Watched(generating=generating)
    vary = iter(varied)
    for i, stream in enumerate(streams):
        name = f"r{i}"
        run = m.begin(name, stream=stream, max_tokens=8)
        m.wait(first_s * next(vary), tick_s=0.9)
        if stream:
            m.first(name, run)
        for count in (2, 3, 4):
            m.wait(step_s * next(vary), tick_s=0.9)
            if stream:
                m.tokens(name, count)
        m.play(run_ended(name, run, output_tokens=4))
    assert not m.stops


@settings(max_examples=examples(60))
@given(
    first_s=st.floats(0.05, 20.0),
    step_s=st.floats(0.01, 2.0),
    got=st.integers(0, 4),
    generating=st.sampled_from([False, None, True]),
)
def test_every_hung_stream_ends_within_its_bound(
    first_s: float, step_s: float, got: int, generating: bool | None
) -> None:
    m = Watched(generating=generating)
    for i in range(3):
        m.answer(f"r{i}", first_s, step_s)
    run = m.begin("hangs")
    if got:
        m.first("hangs", run)
    for count in range(2, got + 1):
        m.wait(step_s)
        m.tokens("hangs", count)
    usual_s = step_s if got else first_s
    bound_s = max(STALLS.least_s, STALLS.factor * usual_s)
    allowed_s = bound_s if generating is False else STALLS.starved * bound_s
    m.wait(allowed_s * 0.9, tick_s=0.9)
    assert not m.stops
    m.wait(allowed_s * 0.2 + 2.0, tick_s=0.9)
    assert [stop.request_id for _, stop in m.stops] == ["hangs"]


@pytest.mark.parametrize("count", [1, 50])
def test_all_runs_of_an_engine_that_hangs_are_given_up(count: int) -> None:
    m = Watched()
    m.answer("warm", 0.5, 0.25)
    for i in range(count):
        m.begin(f"r{i}")
    m.wait(STALLS.least_s + 1.0)
    assert len(m.stops) == count


def test_a_run_that_a_proxy_carries_is_given_up_by_the_engines_counters_alone() -> None:
    m = Watched(generating=True)
    m.play(RunHandedOver("r1", m.begin("r1", stream=False)))
    m.wait(1_000.0)
    m.play(run_ended("r1", 1, output_tokens=None))
    assert m.agent._state.stalls.pace(("w1", "e1")).step_s is None  # nobody counted its tokens
    run = m.begin("r2", stream=False)
    m.play(RunHandedOver("r2", run))
    m.generating = False
    m.wait(STALLS.factor * 1_000.0 + 2.0)
    (_, stop) = m.stops[0]
    assert stop.request_id == "r2"
    assert m.ended()[0].retryable is False
