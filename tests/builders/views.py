"""Plain views of a pool, in which a test changes what it is about."""

from dataclasses import replace
from typing import Any

from hmas.contracts.views import EngineView, ShareView, Tail, VLong, VShort

ENGINE = EngineView(
    worker="w", engine="e", up=True, running=4, waiting=0, kv_usage=0.1, utilisation=0.2, step_s=0.01, n_run=64,
    b_token=65, b_saturated=1, goodput_tokens_per_s=500.0, preemptions_per_s=0.0,
)  # fmt: skip
SHORT = VShort(
    pool="m", window_s=5.0, queued=0, queued_tokens=0, running=4, kv_usage=0.1, utilisation=0.2,
    ttft=Tail(100, 0.5, 1.0, 1.0), tpot=Tail(), violation_rate=0.1, ttft_violation_rate=0.1, tpot_violation_rate=0.0,
    arrival_rps=10.0, settled_rps=10.0, kept_rps=10.0, kept_violation_rate=0.1, arriving_tokens_per_s=1000.0,
    served_tokens_per_s=1000.0, mismatch=0.0, oldest_wait_s=0.0, engines=(ENGINE,), epoch=1, seq=1, valid_for_s=2.0,
)  # fmt: skip
SHARE = ShareView(
    name="a", offered=500, settled=500, ok=450, ttft_ok=450, tpot_ok=450, tokens_served=50_000, weight=1.0
)
LONG = VLong(
    pool="m", window_s=120.0, arrival_rps=10.0, arrival_cv=1.0, burstiness=2.0, prompt_mean=500.0, prompt_cv=0.5,
    output_mean=200.0, output_cv=0.5, predicted_total_cv=0.5, prompt_histogram=(), output_histogram=(), tasks=(),
    tenants=(SHARE,), jain_index=1.0, goodput=10.0, goodput_rate=1.0, esg_rate=100.0, violation_rate=0.0,
    ttft_violation_rate=0.0, tpot_violation_rate=0.0, ttft=Tail(), tpot=Tail(), queued=0, mismatch_mean=0.0,
    mismatch_p95=0.0, utilisation=0.5, trend_arrival=0.0, trend_violation=0.0, trend_prompt=0.0, epoch=1, seq=1,
)  # fmt: skip


def engine_view(**changes: Any) -> EngineView:
    """An engine that is up and has room."""
    return replace(ENGINE, **changes)


def v_short(**changes: Any) -> VShort:
    """A pool of one engine that has room, at ten requests a second, of which a tenth misses its TTFT."""
    return replace(SHORT, **changes)


def share_view(name: str = "a", **changes: Any) -> ShareView:
    return replace(SHARE, name=name, **changes)


def v_long(**changes: Any) -> VLong:
    """Two minutes of ten requests a second, of one tenant, all of them on time."""
    return replace(LONG, **changes)
