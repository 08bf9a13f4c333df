"""Dynamic chunking: prefill takes the slack of the decodes, and no more."""

from math import inf

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.registry import COMPLETIONS_PATH
from hmas.contracts.step_cost import StepCostModel
from hmas.engine.api import ApiReader, Generation, UrgencyTerms
from hmas.engine.core import EngineCore
from hmas.engine.core.chunking import MIN_CHUNK_TOKENS, Allowance, TokenDeadline, TokenDeadlines
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineLimits, EngineProfile, builtin_profile
from hmas.engine.core.sequence import EngineRequest
from tests.conftest import examples

COST = StepCostModel(c0_s=0.010, c_p_s=0.0001, c_d_s=0.0002, c_k_s=1e-7, c_pp_s=2e-9)
BARE_S, LEAST_S = 0.010, 0.020


def core(budget: int = 2048) -> EngineCore:
    limits = EngineLimits(64, budget, num_gpu_blocks=8192, max_model_len=32768, enable_prefix_caching=False)
    return EngineCore(EngineProfile("p", COST, limits).with_limits(dynamic_chunking=True))


def decoding(pace: TokenDeadline | None, budget: int = 2048) -> EngineCore:
    """An engine in which one request with this pace has its first token, beside a prompt of 20,000 tokens."""
    engine = core(budget)
    engine.add(EngineRequest("d", 10, 5000, pace=pace))
    engine.step_begin(0.0)
    engine.step_end()
    engine.add(EngineRequest("p", 20_000, 5))
    return engine


def step_s(engine: EngineCore, now_s: float) -> tuple[float, int]:
    plan = engine.step_begin(now_s)
    assert plan is not None
    engine.step_end()
    return plan.duration_s, plan.prefill_tokens


def test_the_step_lasts_until_the_next_token_is_due() -> None:
    seconds, tokens = step_s(decoding(TokenDeadline(0.050, first_due_s=0.5)), now_s=0.450)  # token 2 is due at 0.55
    assert seconds == pytest.approx(0.1, abs=COST.c_p_s)
    assert seconds <= 0.1
    assert tokens == pytest.approx((0.1 - 0.0102) / COST.c_p_s, rel=0.02)


def test_what_a_request_is_ahead_of_its_pace_is_lent_to_prefill() -> None:
    """Deadlines are cumulative: D_n = arrival + SLO_TTFT + (n - 1) SLO_TBT (Niyama Eq. 2)."""
    engine = decoding(TokenDeadline(0.050, first_due_s=6.0))
    assert step_s(engine, 0.02)[1] == 2048 - 1  # the first token came six seconds early: the whole budget
    assert step_s(engine, 6.05)[0] == pytest.approx(0.05, abs=COST.c_p_s)  # token 3 is due at 6.1


def test_without_a_stated_first_deadline_the_pace_starts_at_the_first_token() -> None:
    assert step_s(decoding(TokenDeadline(0.050)), 1.0)[0] == pytest.approx(0.05, abs=COST.c_p_s)


def test_without_paces_the_budget_decides() -> None:
    assert step_s(decoding(None, budget=512), 0.0)[1] == 511


def test_a_late_decode_leaves_the_minimum_chunk() -> None:
    assert step_s(decoding(TokenDeadline(0.050, first_due_s=0.0)), 9.0)[1] == MIN_CHUNK_TOKENS


def test_the_chunk_is_no_longer_than_a_prompt() -> None:
    engine = decoding(TokenDeadline(0.050, first_due_s=100.0), budget=8192)
    engine.add(EngineRequest("q", 30, 5))
    taken = [step_s(engine, 0.1)[1] for _ in range(3)]
    assert sum(taken) == 20_030


def test_a_pace_needs_a_tpot() -> None:
    with pytest.raises(ValueError, match="tpot_s"):
        TokenDeadline(0.0)


@pytest.mark.parametrize(
    ("slacks", "seconds", "tokens"),
    [
        ([], inf, inf),
        ([(0.5, 0.05), (0.3, 0.05)], 0.3 - BARE_S, inf),
        ([(0.012, 0.05)], 0.012 - BARE_S, inf),  # in time only with a smaller chunk than the minimum
        ([(0.005, 0.05)], inf, MIN_CHUNK_TOKENS),  # late whatever is done
        ([(0.012, 0.015)], inf, MIN_CHUNK_TOKENS),  # no schedule with prefill keeps 15 ms
        ([(0.025, 0.015)], 0.025 - BARE_S, inf),  # but the slack it has is kept
        ([(0.005, 0.05), (0.04, 0.05)], 0.04 - BARE_S, MIN_CHUNK_TOKENS),
    ],
)
def test_allowance(slacks: list[tuple[float, float]], seconds: float, tokens: float) -> None:
    deadlines, now_s, ended = TokenDeadlines(), 7.0, 3
    for slack_s, tpot_s in slacks:
        deadlines.add(tpot_s, now_s + slack_s - ended * tpot_s)
    allowed = deadlines.allowance(now_s, ended, BARE_S, LEAST_S)
    assert allowed.seconds == pytest.approx(seconds)
    assert allowed.tokens == tokens
    for slack_s, tpot_s in slacks:
        deadlines.remove(tpot_s, now_s + slack_s - ended * tpot_s)
    assert deadlines.allowance(now_s, ended, BARE_S, LEAST_S) == Allowance()


request = st.tuples(
    st.floats(0.0, 0.4),
    st.integers(1, 6000),
    st.integers(1, 60),
    st.sampled_from([0.015, 0.03, 0.05, 0.4]),
    st.none() | st.floats(0.1, 8.0),
)


@settings(max_examples=examples(150))
@given(st.lists(request, min_size=1, max_size=14))
def test_no_decode_that_could_be_in_time_is_made_late(
    script: list[tuple[float, int, int, float, float | None]],
) -> None:
    """And every request ends: slack is waited for, never for good."""
    engine, now_s, arrival_s = core(), 0.0, 0.0
    pending: list[tuple[float, EngineRequest]] = []
    tokens: dict[str, int] = {}
    for i, (gap_s, prompt, output, tpot_s, ttft_s) in enumerate(script):
        arrival_s += gap_s
        due_s = None if ttft_s is None else arrival_s + ttft_s
        pending.append((arrival_s, EngineRequest(f"r{i}", prompt, output, pace=TokenDeadline(tpot_s, due_s))))
    first_s: dict[str, float] = {}
    paces = {r.id: r.pace for _, r in pending}
    finished = 0
    while finished < len(script):
        while pending and pending[0][0] <= now_s:
            engine.add(pending.pop(0)[1])
        plan = engine.step_begin(now_s)
        if plan is None:
            now_s = pending[0][0]
            continue
        bare_s = COST.step_s(0, plan.decode_seqs, plan.context_tokens, 0.0)
        end_s = now_s + plan.duration_s
        longest_s = bare_s + COST.prefill_s(MIN_CHUNK_TOKENS, MIN_CHUNK_TOKENS * 6100)
        result = engine.step_end()
        for name in result.tokens:
            pace = paces[name]
            assert pace is not None
            if name in result.first:
                first_s[name] = pace.first_due_s or end_s
            elif pace.tpot_s >= longest_s and now_s + bare_s <= (next_s := first_s[name] + tokens[name] * pace.tpot_s):
                assert end_s <= next_s + 1e-9
            tokens[name] = tokens.get(name, 0) + 1
        finished += len(result.finished)
        now_s = end_s


def test_terms_are_read_from_vllm_xargs_and_nonsense_is_not() -> None:
    profile = builtin_profile("tiny-emulated")
    reader = ApiReader("m", profile.limits, OutputLength(10.0, 1.0, 0))

    def terms(**xargs: object) -> UrgencyTerms:
        generation = reader.read(orjson.dumps({"prompt": "a", "max_tokens": 1, "vllm_xargs": xargs}), COMPLETIONS_PATH)
        assert isinstance(generation, Generation), generation
        return generation.terms

    said = terms(hmas_urgency=3.5, hmas_tpot_ms=50, hmas_ttft_ms=-20)
    assert said == UrgencyTerms(3.5, 0.05, -0.02)
    assert said.pace(10.0) == TokenDeadline(0.05, 9.98)
    assert terms(hmas_tpot_ms=50).pace(10.0) == TokenDeadline(0.05)
    assert terms(hmas_urgency="1", hmas_tpot_ms=0, hmas_ttft_ms=[], other=1) == UrgencyTerms()
    assert terms(hmas_tpot_ms=True).pace(10.0) is None


def test_what_waits_is_ordered_by_urgency() -> None:
    limits = EngineLimits(1, 64, num_gpu_blocks=64, max_model_len=512, scheduling_policy="urgency")
    engine = EngineCore(EngineProfile("p", COST, limits))
    for name, urgency in (("none", inf), ("late", 5.0), ("soon", -2.0)):
        engine.add(EngineRequest(name, 10, 2, urgency))
    finished: list[str] = []
    while engine.step_begin() is not None:
        finished += engine.step_end().finished
    assert finished == ["soon", "late", "none"]
