"""The books of an engine: what a worker granted there, beside plain sums."""

from dataclasses import replace
from random import Random

import pytest

from hmas.worker.agent.config import (
    EngineStateConfig,
)
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.entry.entry import QueueEntry
from tests.worker.builders import entry, request


@pytest.mark.parametrize("seed", range(3))
def test_an_engines_books_are_the_sums_over_what_runs(seed: int) -> None:
    rng = Random(seed)
    books = EngineBooks(EngineStateConfig(), 16)
    running: dict[str, object] = {}
    busy_s = taken_s = 0.0
    now_s = 0.0
    entries: list[QueueEntry] = []
    for number in range(1, 200):
        step_s = rng.choice((0.0, 0.25, 1.0))
        busy_s += step_s * bool(running)
        now_s += step_s
        alive = [each for each in entries if each.request.id in running]
        action = rng.randrange(6)
        if action < 2 or not alive:
            made = entry(number, request(f"r{number}", prompt_tokens=rng.randrange(1, 500)), tokens=float(number))
            made.granted_s = now_s
            made.admit(100.0, 100.0, rng.randrange(1, 40))
            books.occupy(now_s, made, 0.5)
            running[made.request.id] = made
            entries.append(made)
        elif action == 2:
            chosen = rng.choice(alive)
            if chosen.first_token_s is None and not chosen.output_tokens:
                books.began(now_s, chosen)
                assert chosen.first_token_s == now_s
                assert chosen.output_tokens == 1
        elif action == 3:
            chosen = rng.choice(alive)
            if chosen.first_token_s is not None:
                before, more = chosen.output_tokens, rng.randrange(-3, 200)
                context = chosen.context_tokens
                anew = books.produced(chosen, before + more)
                assert chosen.output_tokens == max(before, before + more)
                assert anew is (chosen.context_tokens != context)
        elif action == 4:
            books.reserve(rng.choice(alive), rng.randrange(1, 60))
        else:
            chosen = rng.choice(alive)
            books.release(now_s, chosen)
            del running[chosen.request.id]
        alive = [each for each in entries if each.request.id in running]
        assert books.blocks == sum(each.blocks for each in alive)
        assert books.decoding == sum(each.first_token_s is not None for each in alive)
        assert books.contexts == pytest.approx(sum(each.context_tokens for each in alive))
        for each in alive:
            assert each.context_tokens == each.request.prompt_tokens + max(
                each.predicted_tokens / 2, each.output_tokens
            )
        pending = [each.request.id for each in alive if each.first_token_s is None]
        assert [each.request.id for each in books.prefill.entries()] == pending
        assert books.prefill.seconds == pytest.approx(0.5 * len(pending))
        if number % 7 == 0:
            assert books.take_busy_s(now_s) == pytest.approx(busy_s - taken_s)
            taken_s = busy_s


def test_a_prefill_that_cannot_be_seen_is_presumed_done_after_its_time() -> None:
    books = EngineBooks(EngineStateConfig(presumed=2.0), 16)
    seen = entry(1, request("r1", prompt_tokens=980))
    hidden = entry(2, replace(request("r2", prompt_tokens=980), stream=False))
    for each in (seen, hidden):
        each.granted_s = 1.0
        books.occupy(1.0, each, 0.98)
    books.presume(3.0)  # 2 * (0.98 + 0.02) after the grant, and not later
    assert len(books.prefill.entries()) == 2
    books.presume(3.001)
    assert [each.request.id for each in books.prefill.entries()] == ["r1"]


@pytest.mark.parametrize("seed", range(4))
def test_one_more_fits_if_all_that_run_never_hold_more_than_the_budget_at_once(seed: int) -> None:
    """Beside stepping into the future token by token, whatever has grown, left or was promised more since."""
    rng, block = Random(seed), 16
    books = EngineBooks(EngineStateConfig(peak_fresh_s=0.0, peak_kept_s=0.25), block)

    def most(rows: list[tuple[int, int]]) -> int:
        """Of sequences that hold so much and will have so much at their end, a block that is begun in full."""
        steps = max((last - held for held, last in rows), default=0)
        return max(sum(held + block - 1 + t for held, last in rows if last - held >= t) for t in range(steps + 1))

    def row(each: QueueEntry, blocks: int) -> tuple[int, int]:
        held = each.request.prompt_tokens + each.output_tokens
        return held, max(held, blocks * block)

    now_s = 0.0
    for number in range(1, 200):
        made = entry(number, request(f"r{number}", prompt_tokens=rng.randrange(1, 90)), tokens=30.0)
        made.granted_s = now_s
        alive = list(books.running.values())
        action = rng.randrange(4)
        if action == 0:
            now_s += 0.5
            for each in alive:  # one that outgrows its blocks is given more
                books.produced(each, each.output_tokens + 20)
                held = each.request.prompt_tokens + each.output_tokens
                if held > each.blocks * block:
                    books.reserve(each, held // block + 3)
        elif action == 1 and alive:
            books.release(now_s, rng.choice(alive))
        elif action == 2 and alive:
            chosen = rng.choice(alive)
            books.reserve(chosen, chosen.blocks + rng.randrange(1, 4))
        blocks = made.request.prompt_tokens // block + rng.randrange(1, 8)
        running = [row(each, each.blocks) for each in books.running.values()]
        need = most([*running, row(made, blocks)])
        for budget in (need // block, -(-need // block)):
            assert books.peak_fits(now_s, made, blocks, budget) is (budget * block >= need)
        if len(running) < 6:
            made.blocks = blocks
            books.occupy(now_s, made, 0.1)
