"""What an engine says of itself, beside the books."""

from math import inf
from random import Random

import pytest

from hmas.worker.agent.config import (
    EngineStateConfig,
)
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.counts import EngineCounts
from tests.worker.builders import entry, request, sampled


@pytest.mark.parametrize("seed", range(3))
def test_what_differs_from_the_books_counts_once_two_samples_show_it(seed: int) -> None:
    rng, config = Random(seed), EngineStateConfig()
    books = EngineBooks(config, 16)
    counts = EngineCounts(config, books)
    excess_before, missing_before = inf, 0
    for number in range(1, 80):
        now_s = float(number)
        made = entry(number, request(f"r{number}"))
        made.granted_s = now_s - rng.choice((0.0, 1.0, 1.25))
        books.running[made.request.id] = made
        if len(books.running) > 4 or rng.random() < 0.3:
            del books.running[next(iter(books.running))]
        sample = sampled(running=rng.randrange(6), waiting=rng.randrange(3), kv_usage=0.5)
        gone = counts.compare(now_s, sample, 3200, 1.0)
        count = sample.running + sample.waiting
        excess = max(0, count - len(books.running))
        settled = sum(now_s - (each.granted_s or 0.0) > 1.0 for each in books.running.values())
        missing = max(0, settled - count)
        assert counts.foreign == min(excess, excess_before)
        assert counts.foreign_blocks == (int(100.0 * counts.foreign / count) if count else 0)
        assert (gone, counts.missing) == (min(missing, missing_before), missing)
        counts.add_up()
        assert counts.in_flight == len(books.running) + counts.foreign
        excess_before, missing_before = excess, missing


def test_a_request_that_is_adopted_takes_its_part_of_what_was_foreign() -> None:
    counts = EngineCounts(EngineStateConfig(), EngineBooks(EngineStateConfig(), 16))
    counts.compare(0.0, sampled(running=3, kv_usage=0.5), 320, 1.0)
    assert (counts.foreign, counts.foreign_blocks) == (3, 10)
    left = []
    for _ in range(4):
        counts.adopt_one()
        left.append((counts.foreign, counts.foreign_blocks))
    assert left == [(2, 7), (1, 4), (0, 0), (0, 0)]
    counts.restart()
    assert counts.compare(1.0, sampled(running=2), 320, 1.0) == 0
    assert counts.foreign == 2, "the first sample of another start counts at once"


def test_counters_tell_whether_an_engine_computes_and_for_how_long() -> None:
    counts = EngineCounts(EngineStateConfig(counters_fresh_s=10.0, sample_fresh_s=2.0), EngineBooks(
        EngineStateConfig(), 16))  # fmt: skip
    assert counts.generating(0.0) is None
    assert not counts.stands_still
    assert not counts.measured(0.0)
    counts.take(0.0, sampled())
    assert (counts.generating(10.0), counts.generating(10.5)) == (False, None)
    assert counts.stands_still
    assert counts.unread
    for sample in (sampled(decode_tokens_per_s=1.0), sampled(prefill_tokens_per_s=1.0), sampled(kv_usage=0.5)):
        counts.grew = False
        counts.take(20.0, sample)
        assert counts.generating(20.0) is True
        assert counts.stands_still is (sample.kv_usage > 0.0)
    counts.grew = False
    counts.take(21.0, sampled(kv_usage=0.5))
    assert counts.generating(21.0) is False
    counts.take(22.0, sampled(counted=False, decode_tokens_per_s=5.0))
    assert counts.generating(22.0) is None
    assert not counts.grew
    assert not counts.stands_still
    assert (counts.measured(24.0), counts.measured(24.25)) == (True, False)
    assert counts.step_now_s(22.0) == 0.0, "it is idle"
    counts.in_flight = 1
    assert (counts.step_now_s(24.0), counts.step_now_s(24.25)) == (0.01, 0.0)
