from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.views import EngineView, Tail, VShort
from hmas.meta.agent.config import BypassConfig, RollbackConfig
from hmas.meta.agent.guards import BypassGuard, RollbackGuard

ENGINE = EngineView(
    worker="w",
    engine="e",
    up=True,
    running=4,
    waiting=0,
    kv_usage=0.1,
    utilisation=0.2,
    step_s=0.01,
    n_run=64,
    b_token=65,
    b_saturated=1,
    goodput_tokens_per_s=500.0,
    preemptions_per_s=0.0,
)
FINE = VShort(
    pool="m",
    window_s=5.0,
    queued=0,
    queued_tokens=0,
    running=4,
    kv_usage=0.1,
    utilisation=0.2,
    ttft=Tail(100, 0.5, 1.0, 1.0),
    tpot=Tail(),
    violation_rate=0.1,
    ttft_violation_rate=0.1,
    tpot_violation_rate=0.0,
    arrival_rps=10.0,
    settled_rps=10.0,
    kept_rps=10.0,
    kept_violation_rate=0.1,
    arriving_tokens_per_s=1000.0,
    served_tokens_per_s=1000.0,
    mismatch=0.0,
    oldest_wait_s=0.0,
    engines=(ENGINE,),
    epoch=1,
    seq=1,
    valid_for_s=2.0,
)
COLLAPSED = replace(FINE, violation_rate=0.99, kept_violation_rate=0.99)
STALLED = replace(FINE, queued=20, served_tokens_per_s=0.0)


def bypass_times(
    guard: BypassGuard, views: list[tuple[float, VShort]], *, active: bool = False
) -> list[tuple[float, bool]]:
    found = []
    for now_s, view in views:
        reason = guard.over(now_s, view) if active else guard.emergency(now_s, view)
        if reason is not None:
            active = not active
            guard.begin(now_s) if active else guard.rest()
            found.append((now_s, active))
    return found


def every(view: VShort, start_s: float, end_s: float) -> list[tuple[float, VShort]]:
    return [(start_s + i * 0.25, view) for i in range(int((end_s - start_s) * 4))]


@pytest.mark.parametrize("view", [COLLAPSED, STALLED])
def test_an_emergency_must_last(view: VShort) -> None:
    assert bypass_times(BypassGuard(BypassConfig()), every(view, 0.0, 9.9)) == []
    assert bypass_times(BypassGuard(BypassConfig()), every(view, 0.0, 20.0)) == [(10.0, True)]


def test_a_flicker_starts_the_clock_anew() -> None:
    views = every(COLLAPSED, 0.0, 8.0) + every(FINE, 8.0, 8.5) + every(COLLAPSED, 8.5, 18.0)
    assert bypass_times(BypassGuard(BypassConfig()), views) == []


@pytest.mark.parametrize(
    "view",
    [
        replace(
            FINE, violation_rate=0.8, kept_violation_rate=0.8, mismatch=1.5, queued=5000
        ),  # overload: the worst time for FCFS
        replace(COLLAPSED, kept_rps=1.0),  # five requests
        replace(COLLAPSED, kept_violation_rate=0.1),  # what is late had been relegated
        replace(STALLED, queued=0),  # idle
        replace(STALLED, engines=(replace(ENGINE, up=False),)),  # no engine: nothing to unbound
    ],
)
def test_no_emergency(view: VShort) -> None:
    assert bypass_times(BypassGuard(BypassConfig()), every(view, 0.0, 60.0)) == []


def test_clearing_has_hysteresis() -> None:
    guard = BypassGuard(BypassConfig())
    guard.begin(0.0)
    between = replace(FINE, kept_violation_rate=0.7)
    views = every(between, 0.0, 20.0) + every(FINE, 20.0, 29.0) + every(between, 29.0, 30.0) + every(FINE, 30.0, 45.0)
    assert bypass_times(guard, views, active=True) == [(40.0, False)]


def test_bypass_is_not_held_for_ever() -> None:
    guard = BypassGuard(BypassConfig())
    guard.begin(0.0)
    assert bypass_times(guard, every(COLLAPSED, 0.0, 69.0), active=True) == [(60.0, False)]


def rolled_back(before: VShort | None, after: VShort, config: RollbackConfig | None = None) -> float | None:
    guard = RollbackGuard(config or RollbackConfig())
    guard.arm(100.0, before)
    for now_s, view in every(after, 100.25, 160.0):
        if guard.check(now_s, view) is not None:
            return now_s
    return None


def test_rollback_after_settling_and_confirmation() -> None:
    worse = replace(FINE, ttft=Tail(100, 1.0, 2.0, 3.0))
    assert rolled_back(FINE, worse) == 106.75  # 6 s of settling, then four views in a row
    assert rolled_back(FINE, replace(FINE, violation_rate=0.3)) == 106.75


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FINE, FINE),
        (None, COLLAPSED),  # nothing to compare with
        (FINE, replace(FINE, ttft=Tail(100, 1.0, 1.4, 1.45))),  # within rho
        (replace(FINE, ttft=Tail(5, 0.1, 0.1, 0.1)), replace(FINE, ttft=Tail(100, 1.0, 2.0, 3.0))),  # few before
        (FINE, replace(FINE, ttft=Tail(5, 1.0, 2.0, 3.0))),  # few now
        (replace(FINE, ttft=Tail(100, 0.0, 0.0, 0.01)), replace(FINE, ttft=Tail(100, 0.1, 0.2, 0.4))),  # still good
        (replace(FINE, violation_rate=0.0), replace(FINE, violation_rate=0.12)),  # still good
        (FINE, replace(FINE, mismatch=0.5, ttft=Tail(100, 9.0, 9.0, 9.0), violation_rate=0.6)),  # load, not order
        (replace(FINE, mismatch=0.5), replace(FINE, mismatch=0.5, ttft=Tail(100, 1.0, 9.0, 30.0))),  # tail given up
        (replace(FINE, queued=90), replace(FINE, queued=90, ttft=Tail(100, 1.0, 9.0, 30.0))),  # after a burst
    ],
)
def test_no_rollback(before: VShort | None, after: VShort) -> None:
    assert rolled_back(before, after) is None


def test_in_overload_the_violation_rate_still_counts() -> None:
    before = replace(FINE, mismatch=0.5, violation_rate=0.3)
    assert rolled_back(before, replace(before, violation_rate=0.6)) is not None


def test_the_guard_window_ends() -> None:
    guard = RollbackGuard(RollbackConfig())
    guard.arm(0.0, FINE)
    results: list[Any] = [guard.check(now_s, FINE) for now_s, _ in every(FINE, 0.25, 31.0)]
    results += [guard.check(now_s, COLLAPSED) for now_s, _ in every(FINE, 31.0, 60.0)]
    assert not any(results)
