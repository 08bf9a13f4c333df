"""Records → settlements → scores."""

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.laws.scoring import is_ok, score
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.scoring import errors, lag_quantiles, scores_by, settlement, settlements
from hmas_loadgen.worth import Worth


def record(index: int = 0, **fields: object) -> RequestRecord:
    """Sent 0.1 s late; first token 1 s after that, 5 tokens 0.05 s apart."""
    base = {
        "index": index,
        "request_id": f"r{index}",
        "tenant": "acme",
        "task": TaskType.QA,
        "slo": Slo(1.05, 0.051),
        "prompt_tokens": 10,
        "expected_output_tokens": 5,
        "scheduled_s": float(index),
        "sent_s": index + 0.1,
        "end_s": index + 1.3,
        "outcome": Outcome.FINISHED,
        "status": 200,
        "output_tokens": 5,
        "first_token_s": index + 1.1,
        "last_token_s": index + 1.3,
    }
    return RequestRecord(**(base | fields))  # type: ignore[arg-type]


def test_latencies_count_from_the_real_send_and_lag_stands_apart() -> None:
    found = settlement(record(), "m")
    assert (found.ttft_s, found.tpot_s, found.last_token_s) == pytest.approx((1.0, 0.05, 1.2))
    assert found.offered_s == 0.0
    assert lag_quantiles([record(), record(1)]) == pytest.approx((0.1, 0.1))
    assert lag_quantiles([]) == (0.0, 0.0)


def test_one_token_meets_any_tpot() -> None:
    one = record(output_tokens=1, last_token_s=1.1, slo=Slo(1.01, 0.0))
    assert is_ok(settlement(one, "m"))


@pytest.mark.parametrize(("ttlt_s", "ok"), [(None, True), (1.3, True), (1.1, False)])
def test_a_stated_ttlt_counts_beside_ttft_and_tpot(ttlt_s: float | None, ok: bool) -> None:
    """The last token comes after 1.2 s."""
    assert is_ok(settlement(record(slo=Slo(1.05, 0.051, ttlt_s)), "m")) is ok


def test_finished_without_a_token_is_a_failure_of_the_engine() -> None:
    empty = record(first_token_s=None, last_token_s=None, output_tokens=0)
    assert settlement(empty, "m").outcome is Outcome.ENGINE_ERROR


def test_partial_streams_keep_their_outcome() -> None:
    cut = settlement(record(outcome=Outcome.CANCELLED), "m")
    assert cut.outcome is Outcome.CANCELLED
    assert not is_ok(cut)


def test_warm_up_is_left_out_and_groups_add_up() -> None:
    records = [record(i, tenant="a" if i % 2 else "b") for i in range(10)]
    records[7] = record(7, tenant="a", outcome=Outcome.POOL_QUEUE_FULL, error="429 pool_queue_full")
    rows = settlements(reversed(records), "m", warmup_s=4.0)
    assert [row.request_id for row in rows] == [f"r{i}" for i in range(4, 10)]
    whole = score(rows, 6.0)
    parts = scores_by(rows, lambda row: row.tenant, 6.0, Worth())
    assert list(parts) == ["a", "b"]
    assert sum(part.offered for part in parts.values()) == whole.offered == 6
    assert sum(part.goodput for part in parts.values()) == pytest.approx(whole.goodput)
    assert parts["a"].goodput_rate == pytest.approx(2 / 3)
    assert errors(records) == {"429 pool_queue_full": 1}
    (all_of_them,) = scores_by(rows, lambda row: "", 6.0, Worth({"a": 3.0})).values()
    assert all_of_them.utility_rate == pytest.approx((3 + 2 * 3.0) / (3 + 3 * 3.0))
