from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.views import Tail, VShort
from hmas.meta.agent.config import BypassConfig, RollbackConfig
from hmas.meta.agent.guards import BypassGuard, RollbackGuard
from tests.builders.views import engine_view, v_short

ENGINE = engine_view()
ASLEEP = engine_view(asleep=True)
FINE = v_short(engines=(ENGINE,))
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


# --- boundaries


def emergency(**changes: Any) -> bool:
    guard = BypassGuard(BypassConfig(enter_after_s=0.0))
    return guard.emergency(0.0, replace(FINE, **changes)) is not None


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"kept_violation_rate": 0.95}, True), ({"kept_violation_rate": 0.949}, False),
        ({"kept_violation_rate": 0.95, "kept_rps": 4.0}, True),
        ({"kept_violation_rate": 0.95, "kept_rps": 3.99}, False),
        ({"queued": 1, "served_tokens_per_s": 0.99}, True), ({"queued": 1, "served_tokens_per_s": 1.0}, False),
        ({"queued": 0, "served_tokens_per_s": 0.0}, False),
        ({"queued": 1, "served_tokens_per_s": 0.0, "engines": ()}, False),
        ({"queued": 1, "served_tokens_per_s": 0.0, "engines": (ASLEEP,)}, False),
        ({"queued": 1, "served_tokens_per_s": 0.0, "engines": (ASLEEP, *FINE.engines)}, True),
        ({"queued": 3, "queued_asleep": 3, "served_tokens_per_s": 0.0}, False),
        ({"queued": 3, "queued_asleep": 2, "served_tokens_per_s": 0.0}, True),
    ],
)  # fmt: skip
def test_an_emergency_begins_at_its_threshold(changes: dict[str, Any], found: bool) -> None:
    assert emergency(**changes) is found


def test_an_emergency_says_what_it_is() -> None:
    guard = BypassGuard(BypassConfig(enter_after_s=0.0))
    assert guard.emergency(0.0, STALLED) == "20 queued and nothing served"
    assert guard.emergency(0.0, COLLAPSED) == "violation rate 0.99"


def test_a_bypass_ends_once_its_reason_has_been_gone_or_at_its_longest() -> None:
    guard = BypassGuard(BypassConfig())
    guard.begin(100.0)
    half = replace(FINE, kept_violation_rate=0.5)
    assert guard.over(101.0, half) is None
    assert guard.over(110.9, half) is None
    assert guard.over(111.0, half) == "violation rate 0.50: guard conditions cleared"
    for bad in (replace(FINE, kept_violation_rate=0.501), STALLED):
        guard.begin(100.0)
        assert guard.over(101.0, half) is None
        assert guard.over(105.0, bad) is None
        assert guard.over(111.0, half) is None
        assert guard.over(120.9, half) is None
        assert guard.over(121.0, half) is not None
    guard.begin(100.0)
    assert guard.over(159.9, bad) is None
    assert guard.over(160.0, bad) == "held 60 s: normal adaptation is tried again"


def test_rest_forgets_an_emergency_that_was_seen() -> None:
    guard = BypassGuard(BypassConfig())
    assert guard.emergency(0.0, COLLAPSED) is None
    guard.rest()
    assert guard.emergency(10.0, COLLAPSED) is None
    assert guard.emergency(19.9, COLLAPSED) is None
    assert guard.emergency(20.0, COLLAPSED) is not None


def worse(before: VShort, now: VShort, **config: Any) -> bool:
    guard = RollbackGuard(RollbackConfig(settle_s=0.0, confirmations=1, **config))
    guard.arm(0.0, before)
    return guard.check(0.0, now) is not None


TTFT = replace(FINE, ttft=Tail(20, 0.0, 0.0, 1.0), violation_rate=0.0)


@pytest.mark.parametrize(
    ("before", "now", "found"),
    [
        (TTFT, replace(TTFT, ttft=Tail(20, 0.0, 0.0, 1.501)), True),
        (TTFT, replace(TTFT, ttft=Tail(20, 0.0, 0.0, 1.5)), False),
        (TTFT, replace(TTFT, ttft=Tail(19, 0.0, 0.0, 9.0)), False),
        (replace(TTFT, ttft=Tail(19, 0.0, 0.0, 1.0)), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), False),
        (replace(TTFT, ttft=Tail(20, 0.0, 0.0, 0.1)), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 0.751)), True),
        (replace(TTFT, ttft=Tail(20, 0.0, 0.0, 0.1)), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 0.75)), False),
        (replace(TTFT, violation_rate=0.2), replace(TTFT, violation_rate=0.301), True),
        (replace(TTFT, violation_rate=0.2), replace(TTFT, violation_rate=0.3), False),
        (TTFT, replace(TTFT, violation_rate=0.151), True),
        (TTFT, replace(TTFT, violation_rate=0.15), False),
        (TTFT, replace(TTFT, violation_rate=0.9, settled_rps=4.0), True),
        (TTFT, replace(TTFT, violation_rate=0.9, settled_rps=3.99), False),
        (replace(TTFT, settled_rps=3.99), replace(TTFT, violation_rate=0.9), False),
        # an overload that began with the switch explains anything
        (TTFT, replace(TTFT, violation_rate=0.9, mismatch=0.1), False),
        (TTFT, replace(TTFT, violation_rate=0.9, mismatch=0.0999), True),
        (replace(TTFT, mismatch=0.1), replace(TTFT, violation_rate=0.9, mismatch=0.1), True),
        (replace(TTFT, queued=40), replace(TTFT, violation_rate=0.9, mismatch=0.1), True),
        (replace(TTFT, queued=39), replace(TTFT, violation_rate=0.9, mismatch=0.1), False),
        # where there was one before, the tail of TTFT does not count
        (replace(TTFT, mismatch=0.1), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), False),
        (replace(TTFT, mismatch=0.0999), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), True),
        (replace(TTFT, queued=40), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), False),
        (replace(TTFT, queued=39), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), True),
        (replace(TTFT, queued=1, arrival_rps=0.0), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), False),
        (replace(TTFT, queued=0, arrival_rps=0.0), replace(TTFT, ttft=Tail(20, 0.0, 0.0, 9.0)), True),
    ],
)
def test_a_view_is_worse_above_its_limit(before: VShort, now: VShort, found: bool) -> None:
    assert worse(before, now) is found


def test_a_switch_is_watched_from_its_settling_to_the_end_of_its_window() -> None:
    bad = replace(FINE, violation_rate=0.9)
    for at_s, found in ((5.9, False), (6.0, True), (30.0, True), (30.1, False)):
        guard = RollbackGuard(RollbackConfig(confirmations=1))
        guard.arm(0.0, FINE)
        assert (guard.check(at_s, bad) is not None) is found
        assert guard.over(at_s) is (at_s > 30.0)
    guard.arm(0.0, FINE)
    guard.disarm()
    assert guard.check(10.0, bad) is None


def test_views_must_be_worse_in_a_row() -> None:
    bad, guard = replace(FINE, violation_rate=0.9), RollbackGuard(RollbackConfig(confirmations=2))
    guard.arm(0.0, FINE)
    found = [guard.check(10.0 + i, view) is not None for i, view in enumerate((bad, FINE, bad, bad, bad))]
    assert found == [False, False, False, True, True]
    guard.arm(10.0, FINE)
    assert guard.check(20.0, bad) is None  # counted anew
    assert guard.check(20.0, bad) == "violation rate 0.90 after 0.10 before the switch"
