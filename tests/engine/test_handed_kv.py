"""KV that engines hand over: memory that is taken before it comes, and memory that stays after the last token."""

from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import EngineRequest
from tests.engine.test_engine_core import drain, profile, run_step

READS = EngineRequest("r", prompt_tokens=9, output_tokens=3, reads=True)


def core_of(**limits: object) -> EngineCore:
    return EngineCore(profile(**{"block_size": 4, "num_gpu_blocks": 10, "max_model_len": 40} | limits))


def begin(core: EngineCore) -> dict[str, int]:
    """Begins and ends a step, if there is one, and takes what is to be read."""
    if core.step_begin() is not None:
        core.step_end()
    found, core.handed.to_read = dict(core.handed.to_read), {}
    return found


def test_memory_is_taken_before_the_kv_comes_and_one_token_is_computed_after() -> None:
    core = core_of()
    core.add(READS)
    assert begin(core) == {"r": 8}
    assert (core.kv.free, len(core.running), len(core.waiting)) == (8, 0, 0)
    assert begin(core) == {}
    core.handed.landed("r")
    plan = core.step_begin()
    assert plan is not None
    assert (plan.admitted, plan.prefill_tokens) == (["r"], 1)
    assert core.step_end().first == ["r"]
    drain(core)
    assert (core.kv.free, core.handed.idle) == (10, True)
    core.kv.check()


def test_a_prompt_of_one_token_is_computed() -> None:
    core = core_of()
    core.add(replace(READS, prompt_tokens=1))
    assert begin(core) == {}
    drain(core)
    assert (core.kv.free, core.handed.idle) == (10, True)


def test_what_is_cached_here_need_not_be_read() -> None:
    core = core_of(enable_prefix_caching=True)
    core.add(EngineRequest("a", 9, 1, prefix_hashes=(1, 2)))
    drain(core)
    core.add(EngineRequest("b", 13, 1, prefix_hashes=(1, 2, 3), reads=True))
    assert begin(core) == {"b": 4}
    core.handed.landed("b")
    core.add(EngineRequest("c", 13, 1, prefix_hashes=(1, 2, 3)))
    core.step_begin()
    assert sorted(zip((result := core.step_end()).first, result.cached, strict=True)) == [("b", 8), ("c", 12)]


def test_others_run_while_one_reads_and_it_comes_before_those_that_wait() -> None:
    core = core_of(max_num_seqs=1)
    core.add(READS)
    core.add(EngineRequest("a", 4, 2))
    core.add(EngineRequest("b", 4, 1))
    assert begin(core) == {"r": 8}
    assert list(core.running) == ["a"]
    core.handed.landed("r")
    run_step(core)
    assert core.step_begin() is not None
    assert list(core.running) == ["r"]


def test_what_is_lent_stays_until_it_is_given_back() -> None:
    core = core_of()
    core.add(EngineRequest("p", 9, 1, lends=True))
    drain(core)
    assert (core.kv.free, list(core.handed.lent)) == (7, ["p"])
    assert core.stats().kv_cache_usage == pytest.approx(0.3)
    assert core.handed.give_back("p")
    assert not core.handed.give_back("p")
    assert core.kv.free == 10


def test_memory_that_is_lent_or_read_into_is_nobody_elses() -> None:
    """An engine in which nothing runs takes any request, unless memory is held for KV on its way."""
    core = core_of(num_gpu_blocks=4, max_model_len=16)
    core.add(EngineRequest("p", 9, 1, lends=True))
    drain(core)
    core.add(EngineRequest("a", 8, 1))
    assert core.step_begin() is None
    core.handed.give_back("p")
    assert drain(core) == ["a"]


def test_the_last_block_of_a_prompt_stays_free_for_it() -> None:
    """Two prompts read all but the block of their last tokens; another that would take it waits."""
    core = core_of(num_gpu_blocks=6, max_model_len=24)
    for name in ("r", "s"):
        core.add(EngineRequest(name, 9, 1, reads=True))
    assert begin(core) == {"r": 8, "s": 8}
    core.add(EngineRequest("a", 4, 1))
    assert core.step_begin() is None
    core.handed.landed("s")
    core.handed.landed("r")
    assert sorted(drain(core)) == ["a", "r", "s"]
    assert core.kv.free == 6


@pytest.mark.parametrize("policy", ["fcfs", "priority"])
def test_one_whose_kv_has_come_goes_before_one_that_was_preempted(policy: str) -> None:
    """The preempted one waits for the memory that the other holds."""
    core = core_of(max_num_seqs=3, scheduling_policy=policy)
    core.add(EngineRequest("r", 18, 1, priority=1, reads=True))
    assert begin(core) == {"r": 17}
    core.add(EngineRequest("a", 20, 2))
    while core.kv.free:
        begin(core)
    core.handed.landed("r")
    assert begin(core) == {}
    assert drain(core) == ["r", "a"]


@pytest.mark.parametrize("landed", [False, True], ids=["reading", "landed"])
def test_a_request_that_reads_can_be_aborted(landed: bool) -> None:
    core = core_of()
    core.add(READS)
    begin(core)
    if landed:
        core.handed.landed("r")
    assert core.abort("r")
    assert (core.kv.free, core.handed.idle, core.step_begin()) == (10, True, None)
    core.kv.check()


@given(
    st.lists(
        st.tuples(st.integers(1, 20), st.integers(1, 6), st.booleans(), st.booleans(), st.booleans()),
        min_size=1, max_size=12,
    ),
    st.data(),
)  # fmt: skip
def test_all_end_and_no_memory_is_lost(asked: list[tuple[int, int, bool, bool, bool]], data: st.DataObject) -> None:
    """Whatever reads, lends, is preempted or aborted, in any order."""
    core = core_of(max_num_seqs=3, enable_prefix_caching=True)
    aborted = set()
    for number, (prompt, output, reads, lends, abort) in enumerate(asked):
        hashes = tuple(range(prompt // 4))
        core.add(EngineRequest(f"r{number}", prompt, output, prefix_hashes=hashes, reads=reads, lends=lends))
        if abort:
            aborted.add(f"r{number}")
    flying: list[str] = []

    def happens(turn: int) -> bool:
        """By draw, and in the end without one: what is never drawn would hold memory for ever."""
        return turn > 200 or data.draw(st.booleans())

    for turn in range(2000):
        if core.step_begin() is not None:
            core.step_end()
        flying += core.handed.to_read
        core.handed.to_read = {}
        if flying and happens(turn):
            core.handed.landed(flying.pop(data.draw(st.integers(0, len(flying) - 1))))
        if aborted and happens(turn):
            gone = aborted.pop()
            core.abort(gone)
            flying = [name for name in flying if name != gone]
        if core.handed.lent and happens(turn):
            core.handed.give_back(next(iter(core.handed.lent)))
        core.kv.check()
        if not (core.running or core.waiting or flying or core.handed.reading or core.handed.lent or aborted):
            break
    assert (core.kv.free, core.handed.idle, len(core.waiting)) == (10, True, 0)
