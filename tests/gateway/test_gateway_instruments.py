from dataclasses import replace

import pytest
from prometheus_client import REGISTRY

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.gateway.metrics import MAX_KEYS, MAX_TENANTS, count_settled, told_verdict
from hmas.gateway.usage.book import UNKNOWN_USE, Used
from tests.builders.telemetry import request_settled


def settled(tenant: str = "acme", outcome: Outcome = Outcome.FINISHED, ttft_s: float | None = 0.5, tpot_s: float = 0.02,
            *, whole: bool = False, ttlt_s: float | None = None) -> RequestSettled:  # fmt: skip
    done = outcome is Outcome.FINISHED
    return request_settled(
        tenant=tenant, outcome=outcome, slo=Slo(1.0, 0.05, ttlt_s, whole=whole), prompt_tokens=10,
        output_tokens=20 if done else 0, predicted_output_tokens=20.0, ttft_s=ttft_s, tpot_s=tpot_s if done else None,
        last_token_s=ttft_s + 19 * tpot_s if done and ttft_s is not None else None,
    )  # fmt: skip


def left(withdrawn_s: float, *, ttft_s: float | None = None, output_tokens: int = 0,
         ttlt_s: float | None = None) -> RequestSettled:  # fmt: skip
    row = settled(outcome=Outcome.CANCELLED, ttft_s=ttft_s, ttlt_s=ttlt_s)
    return replace(row, withdrawn_s=withdrawn_s, output_tokens=output_tokens)


def count(pool: str, tenant: str, verdict: str) -> float:
    labels = {"pool": pool, "tenant": tenant, "task": TaskType.QA.value, "verdict": verdict}
    return REGISTRY.get_sample_value("hmas_gateway_settled_total", labels) or 0.0


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (settled(), "ok"),
        (settled(ttft_s=1.5), "ttft_missed"),
        (settled(tpot_s=0.06), "tpot_missed"),
        (settled(ttft_s=1.5, tpot_s=0.06), "ttft_missed"),
        (settled(ttlt_s=0.7), "ttlt_missed"),
        (settled(ttft_s=5.0, whole=True), "ttlt_missed"),
        (settled(outcome=Outcome.POOL_QUEUE_FULL, ttft_s=None), "failed"),
        (settled(outcome=Outcome.ENGINE_ERROR), "failed"),
        (settled(outcome=Outcome.NEVER_FITS, ttft_s=None), "unjudged"),
        (left(1.0), "unjudged"),
        (left(1.1), "ttft_missed"),
        (left(1.0, ttft_s=0.5, output_tokens=10), "unjudged"),
        (left(1.1, ttft_s=0.5, output_tokens=10), "tpot_missed"),
        (left(0.8, ttft_s=0.5, output_tokens=10, ttlt_s=0.7), "ttlt_missed"),
    ],
)
def test_each_end_has_one_verdict(row: RequestSettled, verdict: str) -> None:
    before = {
        v: count("p1", "acme", v) for v in ("ok", "ttft_missed", "tpot_missed", "ttlt_missed", "failed", "unjudged")
    }
    count_settled("p1", row, told_verdict(row), UNKNOWN_USE)
    after = {v: count("p1", "acme", v) - n for v, n in before.items()}
    assert after == {**dict.fromkeys(before, 0.0), verdict: 1.0}


def test_tenants_beyond_the_bound_share_a_series() -> None:
    for i in range(MAX_TENANTS + 50):
        count_settled("p2", settled(f"tenant-{i}"), "ok", UNKNOWN_USE)
    names = {s.labels["tenant"] for m in REGISTRY.collect() if m.name == "hmas_gateway_settled" for s in m.samples}
    assert len(names) <= MAX_TENANTS + 1
    assert count("p2", "other", "ok") >= 50


def test_relegated_requests_are_counted() -> None:
    for row in (settled(), replace(settled(), relegated=True)):
        count_settled("p3", row, "ok", UNKNOWN_USE)
    assert REGISTRY.get_sample_value("hmas_gateway_relegated_total", {"pool": "p3"}) == 1


def usage(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"hmas_gateway_usage_{name}_total", labels) or 0.0


def test_usage_is_counted_by_the_id_of_the_key() -> None:
    for used in (Used("k1", True, 4), Used("k1", False, 0)):
        count_settled("p4", settled("usage"), "ok", used)
    assert usage("requests", tenant="usage", key="k1", verdict="ok") == 2
    kinds = {kind: usage("tokens", tenant="usage", key="k1", kind=kind) for kind in ("prompt", "cached", "output")}
    assert kinds == {"prompt": 10, "cached": 4, "output": 40}


def test_keys_beyond_the_bound_share_their_series() -> None:
    for i in range(MAX_KEYS + 50):
        count_settled("p5", settled("many"), "ok", Used(f"key-{i}", True, 0))
    names = {s.labels["key"] for m in REGISTRY.collect() if m.name == "hmas_gateway_usage_requests" for s in m.samples}
    assert len(names) <= MAX_KEYS + 1
    assert usage("requests", tenant="other", key="other", verdict="ok") >= 50
