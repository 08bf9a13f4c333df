"""Event scripts against the engine core: exact steps."""

import pytest

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest, Sequence

COST = StepCostModel(c0_s=0.010, c_p_s=0.001, c_d_s=0.002, c_k_s=0.0001, c_pp_s=0.00001)


def profile(**limits: object) -> EngineProfile:
    values: dict[str, object] = {
        "max_num_seqs": 4,
        "max_num_batched_tokens": 8,
        "block_size": 4,
        "num_gpu_blocks": 8,
        "max_model_len": 32,
        "enable_prefix_caching": False,
    }
    return EngineProfile("test", COST, EngineLimits(**{**values, **limits}))  # type: ignore[arg-type]


def run_step(core: EngineCore) -> tuple[list[str], list[str], list[str]]:
    assert core.step_begin() is not None
    result = core.step_end()
    return sorted(result.tokens), result.first, result.finished


def drain(core: EngineCore) -> list[str]:
    finished: list[str] = []
    while core.step_begin() is not None:
        finished += core.step_end().finished
    return finished


def test_first_token_comes_with_the_end_of_prefill_and_output_tokens_are_exact() -> None:
    core = EngineCore(profile())
    core.add(EngineRequest("a", prompt_tokens=12, output_tokens=3))
    assert run_step(core) == ([], [], [])  # 8 of 12 prompt tokens
    assert run_step(core) == (["a"], ["a"], [])
    assert run_step(core) == (["a"], [], [])
    assert run_step(core) == (["a"], [], ["a"])
    assert core.step_begin() is None
    assert core.kv.free == 8


def test_step_duration_is_the_cost_model() -> None:
    core = EngineCore(profile())
    core.add(EngineRequest("a", 6, 5))
    core.add(EngineRequest("b", 9, 5))
    first = core.step_begin()
    assert first is not None
    assert (first.prefill_tokens, first.decode_seqs, first.admitted) == (8, 0, ["a", "b"])
    assert first.duration_s == pytest.approx(0.010 + 0.001 * 8 + 0.00001 * (6 * 3 + 2 * 1))
    core.step_end()
    second = core.step_begin()
    assert second is not None
    # a decodes with 7 tokens of context, b computes its last 7 prompt tokens after 2
    assert (second.prefill_tokens, second.decode_seqs, second.context_tokens) == (7, 1, 7)
    assert second.duration_s == pytest.approx(0.010 + 0.001 * 7 + 0.002 + 0.0001 * 7 + 0.00001 * 7 * 5.5)


def test_admission_is_first_come_first_served_and_capped() -> None:
    core = EngineCore(profile(max_num_seqs=2, max_num_batched_tokens=32))
    for name in "abc":
        core.add(EngineRequest(name, 2, 2))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == ["a", "b"]
    core.step_end()
    assert run_step(core) == (["a", "b"], [], ["a", "b"])
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == ["c"]


def test_memory_shortage_preempts_the_last_admitted_which_is_computed_anew() -> None:
    core = EngineCore(profile(num_gpu_blocks=4, max_model_len=16, max_num_batched_tokens=16))
    core.add(EngineRequest("a", 7, 8))
    core.add(EngineRequest("b", 7, 8))
    assert run_step(core) == (["a", "b"], ["a", "b"], [])  # two blocks each: full
    assert run_step(core) == (["a", "b"], [], [])  # 8 tokens each
    plan = core.step_begin()
    assert plan is not None
    assert plan.preempted == ["b"]
    assert plan.admitted == []  # nobody is admitted in a step that preempts
    core.step_end()
    assert core.generated("b") == 2
    assert core.stats().num_requests_waiting == 1
    assert drain(core) == ["a", "b"]
    assert core.stats().num_preemptions == 1
    assert core.stats().generation_tokens == 16
    assert core.stats().prompt_tokens == 14
    assert core.kv.free == 4


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    core = EngineCore(
        profile(num_gpu_blocks=5, max_model_len=20, enable_prefix_caching=True, max_num_batched_tokens=16)
    )
    core.add(EngineRequest("a", 8, 6))
    core.add(EngineRequest("b", 8, 6))
    run_step(core)
    plan = core.step_begin()
    assert plan is not None
    assert plan.preempted == ["b"]  # one block is left, both need one
    core.step_end()
    plan = core.step_begin()
    while plan is not None and not plan.admitted:
        core.step_end()
        plan = core.step_begin()
    assert plan is not None
    assert plan.prefill_tokens == 5  # of its 9 tokens the first block is still there; a has taken the second
    core.step_end()
    assert drain(core) == ["b"]
    assert core.kv.free == 5


def test_priority_policy_orders_the_queue_and_picks_the_victim() -> None:
    limits = {"scheduling_policy": "priority", "num_gpu_blocks": 4, "max_model_len": 16, "max_num_batched_tokens": 16}
    core = EngineCore(profile(**limits))
    core.add(EngineRequest("late", 7, 4, priority=5))
    core.add(EngineRequest("early", 7, 4, priority=-1))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == ["early", "late"]
    core.step_end()
    run_step(core)
    plan = core.step_begin()
    assert plan is not None
    assert plan.preempted == ["late"]


def test_shared_prefixes_are_computed_once() -> None:
    core = EngineCore(profile(num_gpu_blocks=16, enable_prefix_caching=True, max_num_batched_tokens=32))
    core.add(EngineRequest("a", 12, 2, prefix_hashes=(1, 2, 3)))
    core.add(EngineRequest("b", 13, 2, prefix_hashes=(1, 2, 4)))
    plan = core.step_begin()
    assert plan is not None
    assert plan.prefill_tokens == 12 + 5  # b finds two blocks that a fills in the same step
    core.step_end()
    assert core.kv.free == 16 - (3 + 2)
    drain(core)
    core.add(EngineRequest("c", 12, 2, prefix_hashes=(1, 2, 3)))
    plan = core.step_begin()
    assert plan is not None
    assert plan.prefill_tokens == 4  # at least one token is computed, hence one block
    assert core.stats().prefix_cache_hits == 16
    assert core.stats().prefix_cache_queries == 37


def test_what_comes_with_a_request_need_not_be_computed() -> None:
    core = EngineCore(profile(num_gpu_blocks=16, max_num_batched_tokens=32))
    core.add(EngineRequest("a", 12, 2, computed_tokens=10))
    core.add(EngineRequest("b", 8, 2, computed_tokens=8))
    plan = core.step_begin()
    assert plan is not None
    assert plan.prefill_tokens == 2 + 1  # at least one token is computed
    core.step_end()
    assert core.kv.free == 16 - (3 + 2)
    drain(core)
    assert core.kv.free == 16


def test_abort_frees_at_once_in_every_state() -> None:
    core = EngineCore(profile(max_num_seqs=2))
    for name, prompt in (("a", 4), ("b", 20), ("c", 4)):
        core.add(EngineRequest(name, prompt, 9))
    run_step(core)
    core.step_begin()
    assert core.abort("a")  # decoding, step in flight
    assert core.abort("b")  # prefilling, step in flight
    assert core.abort("c")  # waiting
    assert not core.abort("a")
    assert core.kv.free == 8
    result = core.step_end()
    assert result.tokens == []
    assert core.step_begin() is None


def test_a_reused_id_inherits_nothing() -> None:
    core = EngineCore(
        profile(num_gpu_blocks=5, max_model_len=20, max_num_batched_tokens=16, enable_prefix_caching=True)
    )
    core.add(EngineRequest("a", 8, 6))
    core.add(EngineRequest("b", 8, 6))
    run_step(core)
    run_step(core)  # preempts b
    core.abort("b")
    core.abort("a")
    core.add(EngineRequest("b", 8, 1))
    plan = core.step_begin()
    assert plan is not None
    assert plan.prefill_tokens == 8


def test_running_cap_never_evicts() -> None:
    core = EngineCore(profile(max_num_batched_tokens=16))
    for name in "abcd":
        core.add(EngineRequest(name, 2, 4))
    run_step(core)
    core.set_limits(n_run=1)
    core.add(EngineRequest("e", 2, 1))
    assert run_step(core)[0] == ["a", "b", "c", "d"]
    core.set_limits(n_run=0)
    drain(core)
    assert core.stats().num_requests_waiting == 1
    core.set_limits()
    assert drain(core) == ["e"]


def test_decode_budget_lets_sequences_take_turns() -> None:
    core = EngineCore(profile(max_num_batched_tokens=16))
    for name in "abcd":
        core.add(EngineRequest(name, 2, 4))
    run_step(core)
    core.set_limits(b_token=2)
    served = [run_step(core)[0] for _ in range(4)]
    assert all(len(tokens) == 2 for tokens in served)
    assert [core.generated(name) for name in "abcd"] == [3, 3, 3, 3]
    core.set_limits()
    assert sorted(run_step(core)[2]) == ["a", "b", "c", "d"]


def test_a_preempted_sequence_leaves_its_turn_to_a_stalled_one() -> None:
    core = EngineCore(profile())
    core.set_limits(b_token=1)
    core.add(EngineRequest("a", 8, 15))
    core.add(EngineRequest("b", 1, 14))
    plan = core.step_begin()
    while plan is not None and not plan.preempted:
        core.step_end()
        plan = core.step_begin()
    assert plan is not None  # it is b's turn, whose memory is short, and a is stalled
    assert (plan.preempted, plan.decode_seqs, plan.admitted) == (["b"], 1, [])
    before = core.generated("a")
    assert core.step_end().tokens == ["a"]
    assert core.generated("a") == before + 1
    assert drain(core) == ["a", "b"]
    assert core.kv.free == 8


def test_refusals_are_values() -> None:
    core = EngineCore(profile(max_num_queued_reqs=1))
    assert core.add(EngineRequest("long", 32, 1)) is AddResult.TOO_LONG
    assert core.add(EngineRequest("a", 31, 9)) is AddResult.ACCEPTED
    assert core.add(EngineRequest("b", 1, 1)) is AddResult.QUEUE_FULL
    assert drain(core) == ["a"]
    assert core.stats().generation_tokens == 1  # max_model_len leaves room for one


def test_watermark_leaves_blocks_free_unless_the_engine_is_empty() -> None:
    core = EngineCore(profile(watermark=0.5, max_num_batched_tokens=32))
    core.add(EngineRequest("a", 20, 2))
    core.add(EngineRequest("b", 4, 2))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == ["a"]


def test_a_gate_holds_the_head_of_the_queue_back() -> None:
    def one_at_a_time(core: EngineCore, seq: Sequence) -> bool:
        return not core.running

    core = EngineCore(profile(), gate=one_at_a_time)
    core.add(EngineRequest("a", 2, 3))
    core.add(EngineRequest("b", 2, 3))
    assert run_step(core)[0] == ["a"]
    assert core.fast_forward(0.0, 100.0).steps == 0  # the gate might open at any step
    assert drain(core) == ["a", "b"]


def test_misuse_is_an_error() -> None:
    core = EngineCore(profile())
    core.add(EngineRequest("a", 2, 3))
    with pytest.raises(ValueError, match="already"):
        core.add(EngineRequest("a", 2, 3))
    with pytest.raises(ValueError, match="prefix hashes"):
        core.add(EngineRequest("b", 7, 3, prefix_hashes=(1, 2)))
    with pytest.raises(ValueError, match="at least 1"):
        EngineRequest("c", 0, 1)
    with pytest.raises(RuntimeError, match="no step"):
        core.step_end()
    core.step_begin()
    with pytest.raises(RuntimeError, match="in flight"):
        core.step_begin()


def test_a_prompt_that_goes_on_from_an_answer_finds_the_answers_blocks_too() -> None:
    for answer, cached in (((3, 4), 12), ((), 8)):
        core = EngineCore(profile(enable_prefix_caching=True, max_num_batched_tokens=32))
        core.add(EngineRequest("a", 8, 7, prefix_hashes=(1, 2), answer_hashes=answer))
        drain(core)
        core.kv.check()
        core.add(EngineRequest("b", 17, 1, prefix_hashes=(1, 2, 3, 4)))
        drain(core)
        core.kv.check()
        assert core.stats().prefix_cache_hits == cached
