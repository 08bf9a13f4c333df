"""When a run counts as stalled: the bounds by what is usual on its engine, and at their very instants."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import EngineShare
from hmas.gateway.agent.config import StallConfig
from hmas.gateway.agent.requests.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.requests.stalls import EnginePace, StallWatch
from tests.gateway.gateway_script import ledger_entry, load


def test_an_engines_pace_is_a_mean_of_what_it_took() -> None:
    pace = EnginePace()
    assert pace.usual_first_s(100) is None
    pace.learn_first(8.0, 0, 0.25, streamed=False)
    assert (pace.first_s, pace.first_tokens) == (8.0, 1.0)
    pace.learn_first(4.0, 401, 0.25, streamed=False)
    assert (pace.first_s, pace.first_tokens) == (7.0, 101.0)
    pace.learn_first(1.0, 200, 0.25, streamed=True)
    assert (pace.first_s, pace.first_tokens) == (1.0, 200.0), "that of whole answers counts no more"
    pace.learn_first(99.0, 200, 0.25, streamed=False)
    pace.learn_first(3.0, 400, 0.25, streamed=True)
    assert (pace.first_s, pace.first_tokens) == (1.5, 250.0)
    assert (pace.usual_first_s(100), pace.usual_first_s(500)) == (1.5, 3.0)
    pace.learn_step(0.5, 0.25)
    pace.learn_step(0.1, 0.25)
    assert pace.step_s == pytest.approx(0.4)


def watched(**changes: Any) -> tuple[StallWatch, LedgerEntry]:
    """A watch with a run that begins at 100."""
    ledger = Ledger()
    entry = ledger_entry("r1", **changes)
    ledger.open(entry)
    ledger.queue(entry, 100.0, "w1")
    ledger.run(entry, 100.0, 1, "e1", 1)
    config = StallConfig(least_s=4.0, factor=8.0, unknown_s=32.0, starved=2.0, check_s=0.5, most_gap_s=1000.0)
    watch = StallWatch(config, ledger)
    watch.started(100.0, entry)
    return watch, entry


def still(watch: StallWatch, now_s: float) -> None:
    watch.report(now_s, "w1", load(EngineShare("e1", 8, generating=False)))


def silences(watch: StallWatch, *instants_s: float) -> list[tuple[float, float]]:
    found = []
    for now_s in instants_s:
        watch._checked_s = -1e9
        found += [(stall.silent_s, stall.bound_s) for stall in watch.tick(now_s)]
    return found


def test_a_run_has_stalled_once_it_is_silent_for_longer_than_its_bound() -> None:
    watch, entry = watched()
    still(watch, 90.0)
    assert silences(watch, 132.0, 132.5) == [(32.5, 32.0)]
    watch.pace(entry.ref).learn_first(1.0, 800, 0.1, streamed=True)
    assert silences(watch, 108.0, 108.5) == [(8.5, 8.0)]
    watch.pace(entry.ref).first_s = 0.25
    assert silences(watch, 104.0, 104.5) == [(4.5, 4.0)], "no bound is below the least"
    watch.report(104.5, "w1", load(EngineShare("e1", 8, generating=True)))
    assert silences(watch, 108.0, 108.5) == [(8.5, 8.0)], "whoever may wait for others is given twice as long"
    still(watch, 110.0)
    still(watch, 113.0)
    assert silences(watch, 107.0) == []
    watch._engines[entry.ref].moved_s = 112.0
    watch.lose(113.0, "w2")
    assert watch._engines[entry.ref].still_since_s == 110.0
    watch.lose(113.0, "w1")
    assert watch._engines[entry.ref].still_since_s is None


def test_an_answer_that_cannot_be_seen_is_given_what_its_greatest_length_takes() -> None:
    watch, entry = watched(stream=False, max_tokens=10)
    assert silences(watch, 1e5) == [], "nobody knows what is usual"
    pace = watch.pace(entry.ref)
    pace.learn_first(1.0, 800, 0.1, streamed=True)
    assert silences(watch, 1e5) == []
    pace.learn_step(0.5, 0.1)
    assert silences(watch, 148.0, 148.5) == [(48.5, 48.0)]
    still(watch, 100.0)
    assert silences(watch, 108.0, 108.5) == [(8.5, 8.0)]
    pace.step_s = 2.0
    assert silences(watch, 116.0, 116.5) == [(16.5, 16.0)], "which of the two it waits for cannot be seen"


def test_paces_are_learnt_from_runs() -> None:
    watch, entry = watched(prompt_tokens=500)
    watch.first_token(103.0, entry)
    assert (entry.first_wait_s, entry.moved_s) == (3.0, 103.0)
    entry.output_tokens = 1
    watch.progressed(105.0, entry, 5)
    assert watch.pace(entry.ref).step_s == 0.5
    entry.output_tokens = 5
    watch.progressed(106.0, entry, 5)
    assert watch.pace(entry.ref).step_s == 0.5, "no token has come"
    watch.progressed(107.0, entry, 6)
    assert watch.pace(entry.ref).step_s == pytest.approx(0.5 + 0.1 * (1.0 - 0.5))
    watch.finished(107.0, entry, 6, 100)
    assert (watch.pace(entry.ref).first_s, watch.pace(entry.ref).first_tokens) == (3.0, 400.0)


def test_time_in_which_the_process_stood_still_is_taken_off() -> None:
    watch, entry = watched()
    watch._config = replace(watch._config, most_gap_s=1.0)
    for now_s in (100.0, 101.0, 111.5):
        watch.tick(now_s)
    watch.first_token(112.0, entry)
    assert entry.first_wait_s == 12.0 - 9.5
    assert watch.tick(111.75) == []


def test_frequent_ticks_take_nothing_off_and_add_nothing() -> None:
    watch, entry = watched()
    watch._config = replace(watch._config, most_gap_s=1.0)
    for number in range(20):
        watch.tick(100.0 + 0.5 * number)
    watch.first_token(110.0, entry)
    assert entry.first_wait_s == 10.0


def sleeps(watch: StallWatch, now_s: float, *, asleep: bool) -> None:
    watch.report(now_s, "w1", load(EngineShare("e1", 0 if asleep else 8, generating=False, asleep=asleep)))


def test_a_run_on_an_engine_that_is_asleep_does_not_stall_and_has_its_bound_anew_when_that_wakes() -> None:
    watch, entry = watched()
    watch.pace(entry.ref).learn_first(1.0, 800, 0.1, streamed=True)
    sleeps(watch, 103.0, asleep=True)
    assert silences(watch, 108.5, 1e5) == []
    sleeps(watch, 1e5, asleep=False)
    assert silences(watch, 1e5 + 8.0, 1e5 + 8.5) == [(8.5, 8.0)]


def test_the_time_of_a_sleep_is_no_time_of_a_step() -> None:
    watch, entry = watched()
    watch.first_token(101.0, entry)
    entry.output_tokens = 1
    sleeps(watch, 102.0, asleep=True)
    sleeps(watch, 200.0, asleep=False)
    watch.progressed(200.5, entry, 2)
    assert watch.pace(entry.ref).step_s == pytest.approx(0.5)


def test_a_worker_that_is_lost_tells_no_longer_that_its_engine_is_asleep() -> None:
    watch, entry = watched()
    watch.pace(entry.ref).learn_first(1.0, 800, 0.1, streamed=True)
    sleeps(watch, 103.0, asleep=True)
    watch.lose(200.0, "w1")
    assert silences(watch, 216.0, 216.5) == [(16.5, 16.0)]
