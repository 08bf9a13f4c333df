"""What the worker promises that engines have cached of a prompt, beside what real vLLM reports, where its KV memory is
far too small for all prompts. The figures are printed."""

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hmas.engine.core.kv_cache import KvCache
from hmas.engine.core.sequence import EngineRequest
from hmas.engine.core.sequence import Sequence as Sequence_
from hmas.mesh.ports import free_port
from tests.engines.agent_loops import Call, Loops, client_of, jobs, learn_promises, word_tokens
from tests.engines.conftest import started
from tests.engines.environment import EngineEnvironment
from tests.engines.figures import note
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.long, pytest.mark.timeout(1800)]
BLOCK, BLOCKS = 32, 110
JOBS, AT_ONCE = 36, 14
FLAGS = (
    "--enable-prefix-caching", "--enable-prompt-tokens-details", "--block-size", str(BLOCK),
    "--num-gpu-blocks-override", str(BLOCKS), "--max-num-seqs", "16",
)  # fmt: skip
PRESSED = 0.1  # how far hits of emulated engines may be from real ones where memory is far too small
STALE_S = 2.0  # after which a promise from before a reset is not made any more


class _Engine(VllmServer):
    """With little KV memory, and the paths of vLLM's development mode, by which its cache is reset."""

    def env(self) -> dict[str, str]:
        return super().env() | {"VLLM_SERVER_DEV_MODE": "1"}


class _Publishing(_Engine):
    """One that publishes the events of its KV cache."""

    def __init__(self, environment: EngineEnvironment, folder: Path) -> None:
        self.events_port, self.replay_port = free_port(), free_port()
        events = {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{self.events_port}",
            "replay_endpoint": f"tcp://*:{self.replay_port}",
        }
        super().__init__(environment, folder, *FLAGS, "--kv-events-config", json.dumps(events))


@pytest.fixture(scope="module")
def engines(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[VllmServer]]:
    first, second = (_Engine(environment, tmp_path_factory.mktemp(name), *FLAGS) for name in ("one", "two"))
    with started(first, second):
        yield [first, second]


@pytest.fixture
def mesh(engines: Sequence[VllmServer], tmp_path: Path, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    args = [arg for engine in engines for arg in ("--engine", engine.url)]
    with start_mesh(tmp_path, *args) as running:
        yield running


@pytest.fixture
def loops(environment: EngineEnvironment) -> Loops:
    return Loops(seed=1, body={"allowed_token_ids": word_tokens(environment.model)})


def told(what: str, calls: Sequence[Call]) -> float:
    """Prints how promises were kept; returns the share."""
    later = [call for call in calls if not call.name.endswith("-0")]
    kept = sum(call.kept for call in calls) / len(calls)
    errors = sorted(abs(call.promised - call.cached) for call in calls)
    evicted = sum(call.cached < call.prompt_tokens // 3 for call in later) / len(later)
    print(
        f"\n{what}: {len(calls)} requests, {kept:.1%} of promises within the tolerance; error p50 "
        f"{errors[len(errors) // 2]}, p95 {errors[len(errors) * 95 // 100]}, most {errors[-1]} tokens; cached "
        f"{sum(c.cached for c in calls) / sum(c.prompt_tokens for c in calls):.1%} of prompt tokens, promised "
        f"{sum(c.promised for c in calls) / sum(c.prompt_tokens for c in calls):.1%}; {evicted:.1%} of later calls "
        "found less than a third of their prompts"
    )
    return kept


class EmulatedCache:
    """The cache of an emulated engine that is given the calls which a real one was given. A call for which there is no
    memory waits until another has ended."""

    def __init__(self) -> None:
        self._cache = KvCache(BLOCKS - 1, BLOCK, prefix_caching=True)
        self._running: dict[str, Sequence_] = {}
        self._waiting: list[Call] = []
        self.hits = 0

    def begin(self, call: Call) -> None:
        self._waiting.append(call)
        self._admit()

    def _admit(self) -> None:
        cache = self._cache
        while self._waiting:
            call = self._waiting[0]
            end = call.prompt_tokens + call.output_tokens - 1
            hashes = tuple(call.job * BLOCKS + i for i in range(end // BLOCK))
            full = call.prompt_tokens // BLOCK
            request = EngineRequest(
                call.name, call.prompt_tokens, call.output_tokens,
                prefix_hashes=hashes[:full], answer_hashes=hashes[full:],
            )  # fmt: skip
            seq = Sequence_(request, 0, call.output_tokens, call.prompt_tokens)
            match = cache.match(seq)
            if cache.free - match.free < cache.blocks_of(call.prompt_tokens) - match.blocks:
                return
            del self._waiting[0]
            self._running[call.name] = seq
            self.hits += match.blocks * BLOCK
            cache.take_up(seq, match)
            cache.take(cache.blocks_of(call.prompt_tokens) - match.blocks)
            seq.context = call.prompt_tokens
            cache.enter(seq)

    def end(self, call: Call) -> None:
        seq = self._running.pop(call.name, None)
        if seq is None:
            return
        end, cache = call.prompt_tokens + call.output_tokens - 1, self._cache
        grown = min(cache.free, cache.blocks_of(end) - cache.blocks_of(call.prompt_tokens))
        cache.take(grown)
        seq.context = min(end, (cache.blocks_of(call.prompt_tokens) + grown) * BLOCK)
        self._cache.enter(seq, answered=True)
        self._cache.release(seq, keep=False)
        self._cache.check()
        self._admit()


def emulated_hits(calls: Sequence[Call]) -> int:
    """The tokens that emulated engines find in their caches, given the same calls at the same times."""
    caches: dict[str, EmulatedCache] = {}
    events = [(call.begun_s, True, call) for call in calls] + [(c.sent_s + c.took_s, False, c) for c in calls]
    for _, begins, call in sorted(events, key=lambda event: event[:2]):
        cache = caches.setdefault(call.engine, EmulatedCache())
        (cache.begin if begins else cache.end)(call)
    return sum(cache.hits for cache in caches.values())


def excess_of_emulated(calls: Sequence[Call]) -> float:
    """Prints by which share emulated engines find more tokens in their caches than real ones; returns it."""
    real, emulated = sum(c.cached for c in calls), emulated_hits(calls)
    print(f"emulated engines find {emulated} tokens in their caches, real ones {real}: {emulated / real - 1.0:+.1%}")
    return emulated / real - 1.0


async def test_emulated_engines_find_as_much_in_their_caches(mesh: Any, loops: Loops) -> None:
    async with client_of(mesh.url) as client:
        calls = await jobs(client.chat.completions.create, loops, range(200, 210), 3, "few-")
    await learn_promises(mesh, calls)
    told("agents that fit", calls)
    excess = excess_of_emulated(calls)
    note("excess", excess)
    assert abs(excess) <= 0.02


async def test_promises_are_kept_under_pressure_by_feedback_alone(mesh: Any, loops: Loops) -> None:
    async with client_of(mesh.url) as client:
        calls = await jobs(client.chat.completions.create, loops, range(JOBS), AT_ONCE, "job-")
    await learn_promises(mesh, calls)
    kept = told("by feedback alone", calls)
    excess = excess_of_emulated(calls)
    note("excess_pressed", excess)
    note("kept", kept)
    assert abs(excess) <= PRESSED  # who comes first decides what is displaced
    assert any(c.cached < c.prompt_tokens // 3 for c in calls if not c.name.endswith("-0")), "there was no pressure"
    print(f"\nkept: {kept:.1%} (goal 95 %)")
    assert kept >= 0.90  # which calls meet in an engine is the machine's matter


async def test_no_promise_outlives_a_reset_of_the_cache(mesh: Any, engines: Sequence[VllmServer], loops: Loops) -> None:
    """Agents go on over the reset; what is promised 2 s after it is there."""
    loop = asyncio.get_running_loop()
    async with client_of(mesh.url) as client:
        create = client.chat.completions.create
        running = asyncio.create_task(jobs(create, loops, range(100, 100 + JOBS), AT_ONCE, "reset-"))
        await asyncio.sleep(6.0)
        for engine in engines:
            assert (await asyncio.to_thread(engine.ask, "/reset_prefix_cache", {})).status_code == 200
        at_s = loop.time()
        calls = await running
    await learn_promises(mesh, calls)
    before = {c.job for c in calls if c.sent_s <= at_s}
    firsts: dict[int, Call] = {}  # of the jobs that had begun: what they had cached is gone
    for call in calls:
        if call.sent_s > at_s and call.job in before:
            firsts.setdefault(call.job, call)
    stale = [c for c in firsts.values() if c.promised > c.cached and not c.kept]
    late = max((c.sent_s - at_s for c in stale), default=0.0)
    print(f"\nreset: {len(firsts)} jobs went on, {len(stale)} had a wrong promise, the last {late:.2f} s after it")
    told("over a reset", calls)
    note("stale_s", late)
    assert len(firsts) >= 5, "most had ended before the reset"
    assert late <= 2 * STALE_S


@pytest.fixture(scope="module")
def publishing(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Publishing]:
    engine = _Publishing(environment, tmp_path_factory.mktemp("publishing"))
    with started(engine):
        yield engine


@pytest.fixture
def followed(publishing: _Publishing, tmp_path: Path, start_mesh: Callable[..., Any]) -> Iterator[Any]:
    env = {
        "HMAS_KV_EVENTS": f"tcp://{{host}}:{publishing.events_port}",
        "HMAS_KV_EVENTS_REPLAY": f"tcp://{{host}}:{publishing.replay_port}",
    }
    with start_mesh(tmp_path, "--engine", publishing.url, env=env) as running:
        yield running


async def test_promises_are_kept_under_pressure_with_counted_events(followed: Any, loops: Loops) -> None:
    async with client_of(followed.url) as client:
        calls = await jobs(client.chat.completions.create, loops, range(300, 300 + JOBS), AT_ONCE // 2, "counted-")
    await learn_promises(followed, calls)
    kept = told("with counted events", calls)
    assert any(c.cached < c.prompt_tokens // 3 for c in calls if not c.name.endswith("-0")), "there was no pressure"
    print(f"\nkept: {kept:.1%} (goal 99 %)")
    note("kept_by_events", kept)
    assert kept >= 0.97  # as above


async def test_with_events_no_promise_outlives_a_reset(followed: Any, publishing: _Publishing, loops: Loops) -> None:
    """The engine is idle, because vLLM clears its cache only then. It tells of it with its next step, which is that of
    the first call that comes."""
    async with client_of(followed.url) as client:
        create = client.chat.completions.create
        short = Loops(seed=3, stages=2, pause_s=0.01, body=loops.body)
        before = await jobs(create, short, range(400, 403), 3, "before-")
        assert (await asyncio.to_thread(publishing.ask, "/reset_prefix_cache", {})).status_code == 200
        await jobs(create, Loops(seed=4, stages=1, pause_s=0.01, body=loops.body), range(1), 1, "first-")
        after = await jobs(create, short, range(400, 403), 3, "after-")  # the same prompts again
    await learn_promises(followed, [*before, *after])
    firsts = [call for call in after if call.name.endswith("-0")]
    assert [(c.promised, c.cached) for c in firsts] == [(0, 0)] * 3
    assert all(c.kept for c in after)
