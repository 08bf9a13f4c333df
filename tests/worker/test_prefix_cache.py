"""What a worker remembers of its engines' prefix caches, and which engine it chooses by that."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hmas.contracts.execution import Ended
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.contracts.worker import EngineWentDown, KvCacheCounted
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.config import PrefixCacheConfig
from hmas.worker.agent.engines.prefix_cache import PrefixCache
from hmas.worker.agent.entry.expected_cached import ExpectedCached
from tests.worker.builders import Scripted, dispatched, engine, request

CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=4)
TOKENS = 1000


def _chain(*nodes: int) -> PrefixChain:
    return PrefixChain(nodes, tuple(TOKENS * (i + 1) for i in range(len(nodes))), whole=True)


def _cache(**config: Any) -> PrefixCache:
    return PrefixCache(PrefixCacheConfig(**config))


def test_the_longest_beginning_that_was_granted_counts() -> None:
    cache = _cache()
    cache.hold(_chain(1, 2, 3), 0)
    assert [cache.held(_chain(1, 2, 3, 4)), cache.held(_chain(1, 9)), cache.held(_chain(9))] == [3000, 1000, 0]


def test_what_was_used_longest_ago_is_displaced_the_end_of_a_prompt_first() -> None:
    cache = _cache()
    for chain in (_chain(1, 2), _chain(3, 4), _chain(5)):
        cache.hold(chain, 4000)
        cache.release(chain)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4)), cache.held(_chain(5))] == [1000, 2000, 1000]


def test_what_is_used_again_stays() -> None:
    cache = _cache()
    for chain in (_chain(1, 2), _chain(3, 4), _chain(1, 2), _chain(5)):
        cache.hold(chain, 4000)
        cache.release(chain)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [2000, 1000]


def test_what_runs_is_not_displaced() -> None:
    cache = _cache()
    cache.hold(_chain(1, 2), 4000)
    for chain in (_chain(3, 4), _chain(5, 6)):
        cache.hold(chain, 4000)
        cache.release(chain)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [2000, 0]


def test_a_prompt_that_is_larger_than_the_memory_is_held_while_it_runs() -> None:
    cache = _cache()
    cache.hold(_chain(1, 2, 3), 1500)
    assert cache.held(_chain(1, 2, 3)) == 3000
    cache.release(_chain(1, 2, 3))
    cache.expect(_chain(9), 1500)
    assert cache.held(_chain(1, 2, 3)) == 1500


def test_a_prompt_may_be_displaced_in_part() -> None:
    cache = _cache()
    for chain in (_chain(1, 2), _chain(3)):
        cache.hold(chain, 2500)
        cache.release(chain)
    assert cache.held(_chain(1, 2)) == 1500


def test_counted_tokens_make_ends_true_and_answers_are_found_by_the_next_prompt() -> None:
    cache = _cache()
    cache.block = 16
    cache.hold(_chain(1, 2), 0)
    cache.ended(_chain(1, 2), prompt_tokens=1500, output_tokens=101, capacity_tokens=0)
    assert cache.held(_chain(1, 2, 3)) == 1600 // 16 * 16  # the last token of an answer is not computed
    assert cache.held(_chain(1, 9)) == 750 // 16 * 16  # between what was counted, by the bytes


def test_answers_that_prompts_do_not_repeat_are_not_expected_for_long() -> None:
    cache = _cache()
    for i in range(12):
        first, second = _chain(3 * i + 1), _chain(3 * i + 1, 3 * i + 2)
        cache.hold(first, 0)
        cache.ended(first, prompt_tokens=1000, output_tokens=401, capacity_tokens=0)
        cache.learn(cache.expect(second, 0), 1000)
    assert cache.expect(second, 0).tokens == 1000
    assert cache.trust > 0.7


def test_a_beginning_that_is_gone_soon_after_its_use_means_that_the_cache_was_reset() -> None:
    cache = _cache()
    chains = [_chain(10 * i + 1, 10 * i + 2) for i in range(1, 9)]
    for chain in chains:
        cache.hold(chain, 0)
        cache.release(chain)
    expected = cache.expect(chains[6], 0)
    cache.hold(chains[6], 0)
    cache.learn(expected, 0)
    assert [cache.held(chain) for chain in chains] == [0] * 6 + [2000, 0]


def test_a_missing_end_proves_that_what_is_older_is_gone() -> None:
    cache = _cache()
    chains = [_chain(10 * i + 1, 10 * i + 2) for i in range(1, 9)]
    for chain in chains:
        cache.hold(chain, 0)
        cache.release(chain)
    expected = cache.expect(chains[1], 0)
    cache.hold(chains[1], 0)
    cache.learn(expected, 0)  # used long ago
    assert [cache.held(chain) for chain in chains] == [0] + [2000] * 7


def test_nodes_are_bounded() -> None:
    cache = _cache(max_nodes=10)
    for i in range(1000):
        chain = PrefixChain((i,), (0,), whole=True)
        cache.hold(chain, 0)
        cache.release(chain)
    assert len(cache) == 10


def test_trust_follows_what_the_engine_reports() -> None:
    cache = _cache()
    cache.learn(ExpectedCached(), 0)  # nothing was expected
    assert cache.trust == 1.0
    for _ in range(100):
        cache.learn(ExpectedCached(1000), 0)
    assert cache.trust < 0.01
    for _ in range(100):
        cache.learn(ExpectedCached(1000), 1200)
    assert cache.trust > 0.99


def _worker(*names: str) -> Scripted:
    return Scripted(CONFIG, *(engine(name) for name in names))


def _asking(name: str, *nodes: int) -> Request:
    return replace(request(name, prompt_tokens=3000, max_tokens=1), prefix=_chain(*nodes))


def _finish(agent: Scripted, name: str, cached_tokens: int | None = None) -> None:
    grant = agent.grants[name].grant
    agent.say(1.0, Ended(
        request_id=name, grant=grant, outcome=Outcome.FINISHED, output_tokens=1, cached_tokens=cached_tokens,
    ))  # fmt: skip


def _placed(agent: Scripted, made: Request) -> str:
    effects = agent.submit(1.0, made, promised=False)
    ((_, name),) = dispatched(effects)
    return name


def test_a_request_goes_to_the_engine_that_holds_the_beginning_of_its_prompt() -> None:
    agent = _worker("e1", "e2")
    assert _placed(agent, _asking("a", 1)) == "e1"
    assert _placed(agent, _asking("b", 7)) == "e2"
    _finish(agent, "a")
    _finish(agent, "b")
    assert _placed(agent, _asking("c", 7, 8)) == "e2"
    assert _placed(agent, _asking("d", 9)) == "e1"  # unknown: the least loaded


def test_seconds_of_backlog_outweigh_the_prefill_that_is_saved() -> None:
    agent = _worker("e1", "e2")
    _placed(agent, _asking("a", 1))
    agent.first_token(1.0, "a")
    _finish(agent, "a")
    agent.state.fleet["e1"].prefill.seconds = 0.0
    assert _placed(agent, _asking("b", 1, 2)) == "e1"
    agent.first_token(1.0, "b")
    _finish(agent, "b")
    agent.state.fleet["e1"].prefill.seconds = 100.0
    assert _placed(agent, _asking("c", 1, 3)) == "e2"


def test_an_engine_that_reports_no_cached_tokens_is_not_preferred_for_long() -> None:
    agent = _worker("e1", "e2")
    for i in range(100):
        _placed(agent, _asking(f"a{i}", 1))
        _finish(agent, f"a{i}", cached_tokens=0)
    assert agent.state.fleet["e1"].prefix.trust < 0.01


def test_an_engine_that_was_restarted_holds_nothing() -> None:
    agent = _worker("e1", "e2")
    _placed(agent, _asking("a", 1))
    _finish(agent, "a")
    assert agent.state.fleet["e1"].prefix.held(_chain(1)) == TOKENS // 16 * 16  # of whole blocks
    agent.step(1.0, EngineWentDown("e1", "gone"))
    agent.up(1.0, engine("e1"))
    assert agent.state.fleet["e1"].prefix.held(_chain(1)) == 0


def test_a_suspected_engine_comes_last_whatever_it_holds() -> None:
    agent = _worker("e1", "e2")
    _placed(agent, _asking("a", 1, 2, 3))
    _finish(agent, "a")
    agent.state.fleet["e1"].suspect(0.0)
    agent.state.fleet["e1"].life.held_until_s = 0.0
    assert _placed(agent, _asking("b", 1, 2, 3, 4)) == "e2"


# --- where the engine's own events are counted


def _counted(capacity: int, *chains: PrefixChain) -> PrefixCache:
    """Returns a cache of blocks of 10 tokens, of which the engine counts what these prompts have left there."""
    cache = _cache(spare_blocks=0)
    cache.block = 10
    cache.counted(0, 0, 0)
    for i, chain in enumerate(chains):
        cache.hold(chain, capacity)
        blocks = chain.ends[-1] // 10
        cache.counted((i + 1) * blocks, blocks, 0)
        cache.release(chain)
    return cache


def test_what_the_engine_removed_is_gone_those_used_longest_ago_first() -> None:
    cache = _counted(10_000, _chain(1, 2), _chain(3, 4))
    cache.counted(400 - 150, 0, 150)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [500, 2000]
    cache.counted(400 - 250, 0, 100)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [0, 1500]


def test_what_the_engine_did_not_remove_stays() -> None:
    """An engine has its count of what is there: the worker's own idea of the room for prompts does not matter."""
    cache = _counted(4_100, _chain(1, 2), _chain(3, 4))
    cache.expect(_chain(9), 4_100, growth=2_000)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [2000, 2000]


def test_what_granted_prompts_will_displace_is_not_expected_for_the_next() -> None:
    cache = _counted(4_000, _chain(1, 2), _chain(3, 4))
    cache.hold(_chain(5), 4_000)  # 1,000 tokens that the engine has not computed yet
    assert cache.expect(_chain(1, 2), 4_000).tokens == 990 // 10 * 10
    cache.counted(300, 0, 100)
    cache.counted(400, 100, 0)  # as expected: nothing more goes
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [990 // 10 * 10, 2000]


def test_no_more_is_held_than_the_engine_has() -> None:
    """Others have used the engine meanwhile, or a last block was not full."""
    cache = _counted(10_000, _chain(1, 2), _chain(3, 4))
    cache.counted(300, 0, 0)
    cache.expect(_chain(9), 10_000)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [1000, 2000]


def test_removals_of_what_the_worker_does_not_know_cost_nothing() -> None:
    cache = _counted(10_000, _chain(1, 2), _chain(3, 4))
    cache.counted(900, 500, 0)  # by strangers
    cache.counted(700, 0, 200)
    assert [cache.held(_chain(1, 2)), cache.held(_chain(3, 4))] == [2000, 2000]


def test_without_the_count_the_model_goes_by_feedback_as_before() -> None:
    plain, lost = _cache(), _counted(4_000)
    plain.block = 10
    lost.counted(None, 0, 0)
    for cache in (plain, lost):
        for chain in (_chain(1, 2), _chain(3, 4), _chain(5)):
            cache.hold(chain, 4000)
            cache.ended(chain, chain.ends[-1], 105, 4000)
            cache.release(chain)
    assert [plain.held(_chain(n)) for n in (1, 3, 5)] == [lost.held(_chain(n)) for n in (1, 3, 5)]


def test_the_agent_takes_over_counts_and_clears() -> None:
    worker = Scripted(CONFIG, engine("e1"), engine("e2"))
    worker.submit(0.0, replace(request("a"), prefix=_chain(1, 2)))
    name = worker.grants["a"].engine
    worker.step(0.1, KvCacheCounted(engine=name, blocks=500, stored=500))
    cache = worker.state.fleet[name].prefix
    assert cache.held(_chain(1, 2)) > 0
    worker.step(0.2, KvCacheCounted(engine=name, blocks=0, cleared=True))
    worker.step(0.2, KvCacheCounted(engine="gone", blocks=1))
    assert cache.held(_chain(1, 2)) == 0


class Plain:
    """The parts of a cache by their last use, oldest first: `room` tokens, beyond which the oldest give way."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.parts: dict[tuple[str, int], list[int]] = {}  # what each has, and what is left of it

    def use(self, number: int, running: int | None) -> None:
        for part in (("answer", number), ("prompt", number)):
            if part in self.parts:
                self.parts[part] = self.parts.pop(part)
        over = sum(left for _, left in self.parts.values()) - self.room
        for part in [part for part in self.parts if part != ("prompt", running)]:
            taken = min(max(0, over), self.parts[part][1])
            self.parts[part][1] -= taken
            over -= taken
            if self.parts[part][1] == 0 < taken:
                del self.parts[part]

    def found(self, number: int) -> int:
        whole, left = self.parts.get(("prompt", number), (0, 0))
        return left + (self.parts.get(("answer", number), (0, 0))[1] if left == whole > 0 else 0)


@pytest.mark.parametrize("seed", range(4))
def test_of_what_was_used_longest_ago_just_as_much_is_displaced_as_there_is_no_room_for(seed: int) -> None:
    rng, room = Random(seed), 5000
    cache, plain = _cache(smoothing=0.0), Plain(room)
    for _ in range(150):
        number = rng.randrange(1, 9)
        chain = _chain(number)
        cache.hold(chain, room)
        part = plain.parts.setdefault(("prompt", number), [TOKENS, TOKENS])
        part[1] = part[0]
        plain.use(number, number)
        if rng.random() < 0.6:
            prompt, answer = part[0], rng.randrange(0, 900)
            if part[0] == TOKENS:  # its tokens have not been counted yet
                prompt = rng.randrange(300, 1500)
            cache.ended(chain, prompt, answer + 1, room)
            part[:] = [prompt, prompt]
            plain.parts["answer", number] = [answer, answer]
            plain.use(number, number)
        cache.release(chain)
        held = [cache.held(_chain(each, 99)) for each in range(1, 9)]
        assert held == pytest.approx([plain.found(each) for each in range(1, 9)], abs=1.0)


def test_what_was_granted_is_on_its_way_into_the_engines_cache_as_long_as_any_of_it_runs() -> None:
    cache, first, second = _cache(spare_blocks=0), _chain(1), _chain(2)
    cache.block = 16
    cache.counted(0, 0, 0)
    for chain in (first, second):
        cache.hold(chain, 10_000)
    cache.release(first)
    cache.expect(second, 10_000)
    assert [cache.held(first), cache.held(second)] == [992, 992]
    cache.release(second)
    cache.expect(second, 10_000)
    assert [cache.held(first), cache.held(second)] == [0, 0], "the engine said that it stored none of it"


def test_an_answer_that_a_prompt_has_repeated_is_not_found_a_second_time() -> None:
    cache = _cache()
    cache.block = 16
    cache.hold(_chain(1), 0)
    cache.ended(_chain(1), prompt_tokens=1000, output_tokens=101, capacity_tokens=0)
    assert cache.held(_chain(1, 9)) == 1100 // 16 * 16
    cache.hold(_chain(1, 2), 0)
    assert cache.held(_chain(1, 9)) == 1000 // 16 * 16


def test_how_many_tokens_an_estimated_one_is_true_for_is_learnt() -> None:
    cache = _cache()
    for node in range(1, 200):
        cache.hold(_chain(node), 0)
        cache.ended(_chain(node), prompt_tokens=2 * TOKENS, output_tokens=1, capacity_tokens=0)
    cache.hold(_chain(500), 0)
    assert abs(cache.held(_chain(500, 501)) - 2 * TOKENS) <= 20


def test_prompts_have_less_room_once_what_was_expected_was_not_there() -> None:
    cache = _cache(room_gain=0.25)
    chains = [_chain(node) for node in range(1, 9)]
    for chain in chains:
        cache.hold(chain, 0)
        cache.release(chain)
    cache.learn(cache.expect(chains[1], 0), 0)  # used long ago
    cache.expect(_chain(99), 4000)
    assert sum(cache.held(chain) for chain in chains) == 3000
