"""What the arbiter of a host does, event by event: switches, what it tells, and what it does when something dies."""

import pytest

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.residency import (
    CardLost,
    EngineDemand,
    EngineSeen,
    HostEffect,
    MoveEnded,
    PublishHost,
    Readiness,
    RecordSwitch,
    ResidentEngine,
    SleepEngine,
    StartEngine,
    StopEngine,
    WakeEngine,
)
from hmas.host.agent.config import HostConfig
from tests.host.worlds import World

A, B, C = "a", "b", "c"


def host(*, card_gb: float = 40.0, interrupts: bool = True) -> HostConfig:
    """Three engines of 30 GB awake and 1 asleep, of which one is awake at a time."""
    engines = tuple(
        ResidentEngine(
            engine=name, card="c0", awake_gb=30.0, asleep_gb=1.0, sleep_s=1.0, wake_s=2.0, start_s=50.0,
            interrupts=interrupts,
        )
        for name in (A, B, C)
    )  # fmt: skip
    return HostConfig(host="h", cards={"c0": card_gb}, engines=engines)


def wants(engine: str, *latest_s: float, **fields: float | tuple[float, ...]) -> EngineDemand:
    return EngineDemand(engine=engine, latest_s=latest_s, **fields)  # type: ignore[arg-type]


def moves(world: World) -> list[HostEffect]:
    """What engines were asked for since the last call."""
    found: list[HostEffect] = [effect for effect in world.done if not isinstance(effect, PublishHost | RecordSwitch)]
    world.done.clear()
    return found


def records(world: World) -> list[str]:
    return [effect.reason for effect in world.done if isinstance(effect, RecordSwitch)]


def awake(world: World, name: str) -> None:
    """Wakes an engine for a caller, who is served."""
    world.report("w", [wants(name, 60.0)])
    while world.asked:
        world.now_s += 2.0
        world.end(next(iter(world.asked)))
    world.report("w", [wants(name, spare_s=(60.0,))])
    world.done.clear()


def test_an_idle_engine_makes_room_and_only_then_the_next_one_wakes() -> None:
    world = World(host())
    awake(world, A)
    world.report("w", [wants(B, 30.0)])
    assert moves(world) == [SleepEngine(A, True, 1)]
    world.tick(0.5)
    assert moves(world) == []
    world.end(A)
    assert moves(world) == [WakeEngine(B, 1)]
    world.end(B)
    assert moves(world) == []


def test_who_serves_callers_on_time_keeps_its_place() -> None:
    world = World(host())
    awake(world, A)
    world.report("w", [wants(A, spare_s=(5.0,), drain_s=10.0), wants(B, 60.0)])
    assert moves(world) == []


def test_a_model_is_interrupted_only_where_nobody_becomes_late_by_it() -> None:
    """B's callers can wait for 5 s, A's run takes 40 s more. B is ready after 3 s and serves for 4 s, and A is back
    after 3 s more."""
    for spare_s, asked in ((9.9, []), (10.1, [SleepEngine(A, True, 1)])):
        world = World(host())
        awake(world, A)
        world.report("w", [wants(A, spare_s=(spare_s,), drain_s=40.0), wants(B, 5.0, serve_s=4.0)])
        assert moves(world) == asked


def test_an_engine_that_cannot_be_interrupted_is_drained_first() -> None:
    world = World(host(interrupts=False))
    awake(world, A)
    world.report("w", [wants(A, spare_s=(100.0,), drain_s=4.0, serve_s=50.0), wants(B, 9.0, serve_s=1.0)])
    assert moves(world) == []
    assert world.arbiter.step(world.now_s + 2.0, TimerTicked())[-1].report.engines[0].readiness is Readiness.DRAINING  # type: ignore[union-attr]
    world.report("w", [wants(B, 9.0, serve_s=1.0)])
    assert moves(world) == [SleepEngine(A, False, 1)]


def test_a_woken_engine_is_not_put_to_sleep_before_it_has_begun() -> None:
    world = World(host())
    world.report("w", [wants(A, 30.0)])
    world.end(A)
    moves(world)
    world.report("w", [wants(A, 27.0), wants(B, *[5.0] * 9)])
    assert moves(world) == []
    world.report("w", [wants(A, spare_s=(27.0,), drain_s=20.0), wants(B, *[5.0] * 9)])
    assert moves(world) == [SleepEngine(A, True, 1)]


def test_too_many_moves_leave_models_with_callers_where_they_are() -> None:
    world = World(host())
    awake(world, A)
    world.now_s = 10.0
    world.report("w", [wants(B, 30.0)])
    world.now_s = 26.0  # a move of 16 s within the last minute
    world.report("w", [wants(B, 14.0)])
    world.end(A)
    world.end(B)
    moves(world)
    world.report("w", [wants(B, spare_s=(90.0,), drain_s=50.0), wants(A, 9.0)])
    assert moves(world) == []
    world.now_s = 90.0
    world.report("w", [wants(B, spare_s=(90.0,), drain_s=50.0), wants(A, 9.0)])
    assert moves(world) == [SleepEngine(B, True, 1)]


def test_a_caller_who_has_waited_for_ten_minutes_is_served() -> None:
    world = World(host())
    awake(world, A)
    busy = wants(A, *[1.0] * 20, spare_s=(1.0,), drain_s=60.0)
    world.report("w", [busy, wants(B, late=1, oldest_s=599.0)])
    assert moves(world) == []
    world.report("w", [busy, wants(B, late=1, oldest_s=600.0)])
    assert moves(world) == [SleepEngine(A, True, 1)]


def test_a_switch_that_nobody_needs_any_more_is_given_up() -> None:
    world = World(host())
    awake(world, A)
    world.report("w", [wants(B, 30.0)])
    world.report("w", [])
    world.end(A)
    assert moves(world) == [SleepEngine(A, True, 1)]


def test_a_switch_is_void_once_an_idle_victim_has_callers_again() -> None:
    engines = tuple(
        ResidentEngine(
            engine=name, card="c0", awake_gb=gb, asleep_gb=0.5, sleep_s=1.0, wake_s=2.0, start_s=50.0
        )
        for name, gb in (("big", 38.0), ("one", 15.0), ("two", 15.0))
    )  # fmt: skip
    world = World(HostConfig(host="h", cards={"c0": 40.0}, engines=engines))
    awake(world, "one")
    awake(world, "two")
    world.now_s += 5.0
    world.report("w", [wants("big", 30.0)])
    assert moves(world) == [SleepEngine("one", True, 1)]
    world.report("w", [wants("big", 30.0), wants("two", spare_s=(20.0,), drain_s=9.0)])
    world.end("one")
    assert moves(world) == []


def test_engines_start_one_after_another_and_each_has_slept_once() -> None:
    world = World(host(), real=dict.fromkeys((A, B, C), Readiness.COLD))
    asked: list[HostEffect] = moves(world)
    while world.asked:
        world.now_s += 1.0
        world.end(next(iter(world.asked)))
        asked += moves(world)
    assert asked == [
        StartEngine(A, 1), SleepEngine(A, True, 1), StartEngine(B, 1), SleepEngine(B, True, 1), StartEngine(C, 1),
    ]  # fmt: skip


def test_a_model_that_can_never_fit_is_refused_with_the_sum() -> None:
    with pytest.raises(
        ValueError, match=r"a can never wake on the card c0: its 30 GB and the 2 GB .* are 32 GB, and the "
    ):
        host(card_gb=31.9)
    assert host(card_gb=32.0).cards == {"c0": 32.0}


# --- what dies ---------------------------------------------------------------------------------------------------


def test_a_new_arbiter_moves_nothing_before_it_knows_every_engine_and_has_the_lease() -> None:
    world = World(host())
    awake(world, A)
    world.arbiter = world.make(world.config)
    world.report("w", [wants(B, 30.0)])
    world.see(A)
    world.see(B)
    world.see(C)
    assert moves(world) == []
    world.restart(epoch=2)
    world.report("w", [wants(B, 30.0)])
    assert moves(world) == [SleepEngine(A, True, 2)]


def test_without_the_lease_nothing_moves() -> None:
    world = World(host())
    world.step(CardLost("c0"))
    world.report("w", [wants(B, 30.0)])
    assert moves(world) == []


def test_what_a_dead_worker_reported_is_forgotten() -> None:
    world = World(host())
    awake(world, A)
    world.report("v", [wants(A, 1.0, spare_s=(1.0,), drain_s=99.0)])
    world.now_s += 3.5
    world.report("w", [wants(B, 1.0)])
    assert moves(world) == [SleepEngine(A, True, 1)]


def test_a_move_that_never_ends_has_failed_and_its_engine_counts_until_it_is_seen_cold() -> None:
    world = World(host())
    world.report("w", [wants(A, 60.0)])
    world.tick(10.5)
    assert "a was waking and failed: no answer for 10 s" in records(world)
    moves(world)
    world.report("w", [wants(B, 60.0)])
    assert moves(world) == []  # 30 GB may be A's
    world.now_s += 31.0
    world.report("w", [wants(B, 60.0)])
    assert moves(world) == []
    world.tick(0.5)
    assert moves(world) == [StopEngine(A, 1), WakeEngine(B, 1)]


def test_a_refused_move_is_a_failure_until_the_engine_shows_what_it_is() -> None:
    world = World(host())
    world.report("w", [wants(A, 60.0)])
    world.asked.pop(A)
    world.step(MoveEnded(A, False, 1.0, "HTTP 500"))
    assert "a was waking and failed: HTTP 500" in records(world)
    moves(world)
    world.step(EngineSeen(A, Readiness.ASLEEP))
    assert moves(world) == [WakeEngine(A, 1)]


def test_an_engine_that_dies_in_a_move_makes_room_at_once() -> None:
    world = World(host())
    world.report("w", [wants(A, 60.0), wants(B, 90.0)])
    assert moves(world) == [WakeEngine(A, 1)]
    world.crash(A)
    assert moves(world) == [WakeEngine(B, 1)]


def test_a_move_of_another_is_taken_over_as_seen_and_the_engine_left_alone_for_a_minute() -> None:
    world = World(host())
    awake(world, A)
    world.real[A] = Readiness.ASLEEP
    world.see(A)
    assert records(world) == ["foreign: a is asleep, and no move of ours explains it"]
    moves(world)
    world.report("w", [wants(A, 50.0)])
    assert moves(world) == []
    world.now_s += 60.0
    world.report("w", [wants(A, 50.0)])
    assert moves(world) == [WakeEngine(A, 1)]


def test_what_is_told() -> None:
    world = World(host())
    world.tick(5.0)
    world.done.clear()
    world.report("w", [wants(A, 60.0)])
    (told,) = [effect.report for effect in world.done if isinstance(effect, PublishHost)]
    assert [(each.engine, each.readiness.value, each.ready_s) for each in told.engines] == [
        (A, "waking", 2.0), (B, "asleep", None), (C, "asleep", None),
    ]  # fmt: skip
    world.done.clear()
    world.tick(0.5)
    assert world.done == []
    world.tick(0.5)
    assert len(world.done) == 1
