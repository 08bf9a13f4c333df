"""What counts as on time, and every figure of a run beside its definition (DESIGN §8)."""

from dataclasses import replace
from math import isnan
from random import Random
from statistics import fmean, quantiles

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.laws.scoring import (
    Settlement,
    is_ok,
    jain_index,
    mismatch,
    quantile,
    score,
    service_by_tenant,
    service_gain,
    tpot_ok,
    tpot_s,
    ttft_ok,
    ttlt_slo_s,
    variation,
    verdict,
    windows,
)
from tests.builders.telemetry import request_settled

# 10 prompt and 11 output tokens; every latency is exactly at its SLO.
EDGE = Settlement(
    request_id="r", tenant="t", task=TaskType.QA, model="m", outcome=Outcome.FINISHED, slo=Slo(2.0, 0.5),
    prompt_tokens=10, output_tokens=11, ttft_s=2.0, tpot_s=0.5, last_token_s=7.0, offered_s=0.0,
)  # fmt: skip
WHOLE = replace(EDGE, slo=Slo(2.0, 0.5, 7.0, True))


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0.0), (1, 0.0), (2, 6.0), (3, 3.0), (13, 0.5)])
def test_the_time_per_output_token_is_that_after_the_first(tokens: int, expected: float) -> None:
    assert tpot_s(1.5, 7.5, tokens) == expected


def test_the_slo_of_the_last_token_is_the_stated_one_or_follows_from_the_two_others() -> None:
    assert ttlt_slo_s(Slo(2.0, 0.5), 11) == 7.5
    assert ttlt_slo_s(Slo(2.0, 0.5, 3.0), 11) == 3.0


def test_a_latency_at_its_slo_is_on_time_and_one_above_it_is_not() -> None:
    assert (ttft_ok(EDGE), tpot_ok(EDGE), is_ok(EDGE)) == (True, True, True)
    late = replace(EDGE, ttft_s=2.001)
    assert (ttft_ok(late), tpot_ok(late), is_ok(late)) == (False, True, False)
    slow = replace(EDGE, tpot_s=0.501)
    assert (ttft_ok(slow), tpot_ok(slow), is_ok(slow)) == (True, False, False)
    none = replace(EDGE, ttft_s=None, tpot_s=None, last_token_s=None)
    assert (ttft_ok(none), tpot_ok(none), is_ok(none)) == (False, False, False)


def test_where_only_the_last_token_is_judged_the_two_others_do_not_count() -> None:
    late = replace(WHOLE, ttft_s=6.9, tpot_s=9.0)
    assert (ttft_ok(late), tpot_ok(late), is_ok(late)) == (True, True, True)
    for last_s in (7.001, None):
        over = replace(WHOLE, last_token_s=last_s)
        assert (ttft_ok(over), tpot_ok(over), is_ok(over)) == (False, False, False)
    implied = replace(EDGE, slo=Slo(2.0, 0.5, None, True), last_token_s=7.5)
    assert is_ok(implied)
    assert not is_ok(replace(implied, last_token_s=7.501))


def test_a_stated_slo_of_the_last_token_counts_beside_the_two_others() -> None:
    both = replace(EDGE, slo=Slo(2.0, 0.5, 7.0))
    assert is_ok(both)
    assert not is_ok(replace(both, last_token_s=7.001))
    assert not is_ok(replace(both, last_token_s=None))
    assert not is_ok(replace(both, ttft_s=2.001))


@pytest.mark.parametrize("outcome", [each for each in Outcome if each is not Outcome.FINISHED])
def test_what_did_not_finish_is_not_on_time_and_gains_nothing(outcome: Outcome) -> None:
    ended = replace(EDGE, outcome=outcome)
    assert not is_ok(ended)
    assert service_gain(ended) == 0.0


def test_the_gain_of_a_request_falls_with_the_excess_of_its_last_token() -> None:
    base = 10 + 2 * 11
    assert service_gain(EDGE) == base  # 7 s of 7.5
    assert service_gain(replace(EDGE, last_token_s=7.5)) == base
    assert service_gain(replace(EDGE, last_token_s=15.0)) == pytest.approx(base / 2)
    assert service_gain(replace(EDGE, last_token_s=0.0)) == base
    assert service_gain(replace(EDGE, last_token_s=0.5)) == base
    assert service_gain(replace(EDGE, last_token_s=None)) == 0.0


CLIENT_FAULTS = {
    Outcome.INVALID_REQUEST, Outcome.UNAUTHENTICATED, Outcome.FORBIDDEN, Outcome.UNKNOWN_MODEL, Outcome.UNKNOWN_PATH,
    Outcome.BODY_TOO_LARGE, Outcome.CLIENT_TOO_SLOW, Outcome.NEVER_FITS, Outcome.ENGINE_REFUSED,
}  # fmt: skip


@pytest.mark.parametrize("outcome", Outcome)
def test_a_fault_of_the_client_is_not_judged_and_a_refusal_is(outcome: Outcome) -> None:
    late = request_settled(outcome=outcome, slo=Slo(1.0, 0.1), ttft_s=1.5, tpot_s=0.05, last_token_s=4.0)
    found = verdict(replace(late, withdrawn_s=2.0) if outcome is Outcome.CANCELLED else late)
    assert found.judged is (outcome not in CLIENT_FAULTS)
    assert (found.ok, found.ttft_ok, found.tpot_ok) == (False, False, True)


LEFT = request_settled(
    outcome=Outcome.CANCELLED, slo=Slo(1.0, 0.25), ttft_s=None, tpot_s=None, last_token_s=None, output_tokens=0,
    predicted_output_tokens=8.0,
)  # fmt: skip
BEGUN = replace(LEFT, ttft_s=0.5, output_tokens=4)  # the fifth token is due 1 s after the first


@pytest.mark.parametrize(
    ("row", "latest_s", "missed"),
    [
        (LEFT, 1.0, (False, True)),
        (BEGUN, 1.5, (True, False)),
        (replace(BEGUN, output_tokens=0), 99.0, ()),  # nobody counted a token after the first
        (replace(BEGUN, slo=Slo(1.0, 0.25, 1.25)), 1.25, (True, True)),
        (replace(LEFT, slo=Slo(1.0, 0.25, 1.25, True)), 1.25, (False, False)),
        (replace(LEFT, slo=Slo(1.0, 0.25, None, True)), 3.0, (False, False)),  # as an answer of 8 tokens may last
        (replace(LEFT, slo=Slo(1.0, 0.25, None, True), output_tokens=12), 4.0, (False, False)),
    ],
)
def test_a_cancelled_request_is_judged_only_if_it_had_missed_an_slo(
    row: RequestSettled, latest_s: float, missed: tuple[bool, bool]
) -> None:
    kept = verdict(replace(row, withdrawn_s=latest_s))
    assert (kept.judged, kept.ok, kept.ttft_ok, kept.tpot_ok, kept.gain) == (False, False, True, True, 0.0)
    if missed:
        late = verdict(replace(row, withdrawn_s=latest_s + 0.001))
        assert (late.judged, late.ok, late.ttft_ok, late.tpot_ok, late.gain) == (True, False, *missed, 0.0)


def test_a_first_token_that_came_late_stays_late_and_an_unknown_end_is_not_judged() -> None:
    late = replace(BEGUN, ttft_s=1.25, withdrawn_s=1.25)
    assert (verdict(late).judged, verdict(late).ttft_ok, verdict(late).tpot_ok) == (True, False, True)
    assert not verdict(replace(late, withdrawn_s=None)).judged


def test_a_verdict_has_the_gain_of_the_settlement() -> None:
    row = request_settled(slo=Slo(2.0, 0.5), prompt_tokens=10, output_tokens=11, ttft_s=2.0, last_token_s=15.0)
    assert verdict(row).gain == pytest.approx(32 / 2)


def test_the_mismatch_is_the_excess_of_what_arrives_over_what_is_served() -> None:
    assert mismatch(300.0, 100.0) == pytest.approx(2.0)
    assert mismatch(50.0, 100.0) == 0.0
    assert mismatch(300.0, 99.0, 1.0) == pytest.approx(2.0)
    assert mismatch(0.0, 0.0) == 0.0


def test_jains_index_is_one_for_equal_shares_and_the_part_of_those_that_have_any_otherwise() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1.0)
    assert jain_index([3.0, 0.0]) == 0.5
    assert jain_index([1.0, 2.0]) == pytest.approx(0.9)
    assert jain_index([0.1, 0.2]) == pytest.approx(0.9)
    assert [jain_index(shares) for shares in ([], [5.0], [0.0, 0.0], [1e300, 1e300])] == [1.0] * 4


def test_a_prompt_counts_with_its_first_token_and_the_output_spread_to_the_last() -> None:
    row = replace(EDGE, offered_s=3.0, ttft_s=2.0, last_token_s=7.0)  # tokens come from 5 s to 10 s
    served = [service_by_tenant([row], until_s)["t"] for until_s in (4.999, 5.0, 7.5, 10.0, 99.0)]
    assert served == pytest.approx([0.0, 10.0, 10.0 + 11.0, 32.0, 32.0])
    alone = replace(row, last_token_s=None)
    assert service_by_tenant([alone], 5.0) == {"t": 32.0}
    assert service_by_tenant([replace(row, ttft_s=None)]) == {"t": 0.0}
    assert service_by_tenant([row, row, replace(row, tenant="u")]) == {"t": 64.0, "u": 32.0}


def test_quantiles_are_interpolated_between_ranks() -> None:
    assert isnan(quantile([], 0.5))
    assert [quantile([7.0], q) for q in (0.0, 0.5, 1.0)] == [7.0] * 3
    values = [1.0, 2.0, 4.0, 8.0, 16.0]
    assert [quantile(values, q) for q in (0.0, 0.25, 0.5, 1.0)] == [1.0, 2.0, 4.0, 16.0]
    assert quantile(values, 0.3) == pytest.approx(2.4)
    assert quantile(values, 0.9) == pytest.approx(12.8)
    many = sorted(Random(1).uniform(0.0, 9.0) for _ in range(57))
    hundredths = quantiles(many, n=100, method="inclusive")
    assert [quantile(many, k / 100) for k in range(1, 100)] == pytest.approx(hundredths)


def test_variation_is_the_deviation_over_the_mean() -> None:
    assert variation([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]) == pytest.approx(2.0 / 5.0)


# --- a run


def some_run(seed: int) -> list[Settlement]:
    rng, rows = Random(seed), []
    for number in range(120):
        outcome = rng.choice([Outcome.FINISHED] * 4 + [Outcome.CANCELLED, Outcome.POOL_QUEUE_FULL])
        came = outcome is not Outcome.POOL_QUEUE_FULL
        first_s = rng.uniform(0.5, 3.0)
        rows.append(
            Settlement(
                request_id=str(number), tenant=rng.choice("abc"), task=rng.choice([TaskType.QA, TaskType.DIALOGUE]),
                model="m", outcome=outcome, slo=Slo(2.0, 0.1), prompt_tokens=rng.randint(1, 999),
                output_tokens=rng.randint(1, 300) if came else 0, ttft_s=first_s if came else None,
                tpot_s=rng.uniform(0.05, 0.15) if came else None,
                last_token_s=first_s + rng.uniform(0.0, 30.0) if came else None, offered_s=rng.uniform(100.0, 155.0),
            )
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_every_figure_of_a_score(seed: int) -> None:
    rows = some_run(seed)
    weights, classes = {"a": 2.0, "b": 0.5}, {TaskType.QA: 3.0}
    found = score(rows, 40.0, weights, classes)
    done = [r for r in rows if r.outcome is Outcome.FINISHED]
    ok = [r for r in done if ttft_ok(r) and tpot_ok(r)]
    worth = {r.request_id: weights.get(r.tenant, 1.0) * classes.get(r.task, 1.0) for r in rows}
    until_s = min(r.offered_s for r in rows) + 40.0
    served = service_by_tenant(rows, until_s)
    shares = [served[tenant] / weights.get(tenant, 1.0) for tenant in served]
    ttft, tpot = (sorted(getattr(r, name) or 0.0 for r in done) for name in ("ttft_s", "tpot_s"))
    expected = {
        "offered": len(rows),
        "completed": len(done),
        "ttft_compliance": sum(map(ttft_ok, done)) / len(rows),
        "tpot_compliance": sum(map(tpot_ok, done)) / len(rows),
        "goodput": len(ok) / 40.0,
        "goodput_rate": len(ok) / len(rows),
        "esg": sum(map(service_gain, done)),
        "esg_rate": sum(map(service_gain, done)) / 40.0,
        "utility_rate": sum(worth[r.request_id] for r in ok) / sum(worth.values()),
        "jain_index": sum(shares) ** 2 / (len(shares) * sum(x * x for x in shares)),
    }
    for kind, values in (("ttft", ttft), ("tpot", tpot)):
        hundredths = quantiles(values, n=100, method="inclusive")
        expected |= {f"{kind}_p{p}_s": hundredths[p - 1] for p in (50, 95, 99)}
    assert {name: getattr(found, name) for name in expected} == pytest.approx(expected)
    unweighted = score(rows, 40.0)
    assert unweighted.utility_rate == pytest.approx(len(ok) / len(rows))
    plain = list(served.values())
    assert unweighted.jain_index == pytest.approx(sum(plain) ** 2 / (len(plain) * sum(x * x for x in plain)))


def test_a_run_without_requests_has_zeros_and_no_quantiles() -> None:
    found = score([], 10.0)
    assert (found.offered, found.completed, found.goodput_rate, found.ttft_compliance) == (0, 0, 0.0, 0.0)
    assert isnan(found.ttft_p50_s)


@pytest.mark.parametrize("seed", range(3))
def test_every_window_counts_what_was_offered_and_what_ended_in_it(seed: int) -> None:
    rows, start_s, width_s, duration_s = some_run(seed), 105.0, 12.0, 40.0
    found = windows(rows, duration_s, width_s, start_s)
    assert [w.start_s for w in found] == [105.0, 117.0, 129.0, 141.0]
    for window, span_s in zip(found, (12.0, 12.0, 12.0, 4.0), strict=True):
        end_s = window.start_s + span_s
        own = [r for r in rows if window.start_s <= r.offered_s < end_s]
        gain = sum(
            service_gain(r)
            for r in rows
            if r.last_token_s is not None and window.start_s <= r.offered_s + r.last_token_s < end_s
        )
        assert (window.offered, window.ok) == (len(own), sum(map(is_ok, own)))
        assert window.goodput == pytest.approx(sum(map(is_ok, own)) / span_s)
        assert window.goodput_rate == pytest.approx(fmean(map(is_ok, own)))
        assert window.esg_rate == pytest.approx(gain / span_s)


def test_windows_begin_at_their_start_and_end_before_the_next() -> None:
    row = replace(EDGE, last_token_s=5.0)
    rows = [replace(row, offered_s=at_s) for at_s in (0.0, 10.0, 20.0)]
    found = windows(rows, 20.0)
    assert [w.offered for w in found] == [1, 1]
    assert [w.esg_rate for w in found] == [3.2, 3.2]
    ends = [replace(row, offered_s=at_s) for at_s in (-5.0, 5.0, 15.0)]
    assert [w.esg_rate for w in windows(ends, 20.0)] == [3.2, 3.2]
    assert [len(windows([], duration_s)) for duration_s in (0.5, 10.0, 10.0 + 1e-12, 10.1, 30.0)] == [1, 1, 1, 2, 3]
    assert [w.esg_rate for w in windows([replace(row, last_token_s=None)], 20.0)] == [0.0, 0.0]
