"""Pace classes in one worker: each class waits in a lane of its own, before engines of its own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.control import EngineClass, Hints, Layout, LayoutDecision, LayoutReceived, TopologyName
from hmas.contracts.request import Request, Slo
from hmas.contracts.worker import (
    ControlExpired,
    CycleTicked,
    EngineWentDown,
    EngineWentUp,
    HeartbeatDue,
    LayoutSwitched,
    PublishHeartbeat,
    WorkerEvent,
)
from hmas.worker.agent.agent import WorkerConfig
from hmas.worker.agent.entry.entry import EntryState
from hmas.worker.agent.queue_view import in_force
from tests.builders.control import topology_received
from tests.worker.builders import Scripted, annotation, dispatched, engine, granted, loads, request, sampled

CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m", static_n_run=2)
SPLIT = Layout((0.1,), (EngineClass("w1/e1", 0), EngineClass("w1/e2", 1)))
MIXED = Layout()
THREE = Layout((0.06, 0.15), SPLIT.engines)
UNNAMED = Layout((0.06, 0.15))


def laid_out(layout: Layout, seq: int = 1) -> WorkerEvent:
    decision = LayoutDecision(
        pool="m", layout=layout, epoch=1, seq=seq, valid_for_s=15.0, reason="why", selector="pace"
    )  # fmt: skip
    return LayoutReceived(decision)


def decided(
    seq: int = 1,
    *,
    bypass: bool = False,
    topology: TopologyName = TopologyName.EDF,
    hints: Hints | None = None,
) -> WorkerEvent:
    return topology_received(topology, hints=hints or Hints(), bypass=bypass, seq=seq)


def paced(name: str, tpot_s: float, ttft_s: float = 4.0) -> Request:
    return request(name, slo=Slo(ttft_s, tpot_s))


def split_worker(layout: Layout = SPLIT, *engines: str) -> Scripted:
    agent = Scripted(CONFIG, *(engine(name) for name in engines or ("e1", "e2")))
    for name in engines or ("e1", "e2"):
        agent.step(0.0, sampled(name, step_s=0.09))  # too slow to help another class out
    agent.step(0.0, decided())
    agent.step(0.0, laid_out(layout))
    return agent


def strict(count: int, first: int = 0) -> list[Request]:
    return [paced(f"s{i}", 0.05) for i in range(first, first + count)]


def lax(count: int, first: int = 0) -> list[Request]:
    return [paced(f"l{i}", 0.15) for i in range(first, first + count)]


def running_of(agent: Scripted) -> list[str]:
    return sorted(e.request.id for e in agent.state.queue.entries() if e.state is EntryState.RUNNING)


def test_each_class_runs_on_its_own_engines_and_waits_for_them() -> None:
    agent = split_worker()
    effects = agent.submit(0.0, *strict(3), *lax(3))
    assert dispatched(effects) == [("s0", "e1"), ("s1", "e1"), ("l0", "e2"), ("l1", "e2")]
    assert granted(effects)[0].timeline.pace_class == "<= 100 ms"
    assert granted(effects)[2].timeline.pace_class == "> 100 ms"
    assert dispatched(agent.finish(1.0, "l0")) == [("l2", "e2")]
    assert dispatched(agent.finish(1.0, "s0")) == [("s2", "e1")]


def test_without_cuts_all_share_all_engines() -> None:
    effects = split_worker(MIXED).submit(0.0, *strict(3))
    assert sorted(engine for _, engine in dispatched(effects)) == ["e1", "e1", "e2"]


def test_a_change_of_layout_moves_what_waits_and_nothing_that_runs() -> None:
    agent = split_worker(MIXED)
    agent.submit(0.0, *strict(4), *lax(2))
    running = {name: grant.engine for name, grant in agent.grants.items()}
    effects = agent.step(1.0, laid_out(SPLIT, seq=2))
    assert [e for e in effects if isinstance(e, LayoutSwitched)] == [LayoutSwitched(MIXED, SPLIT, 2, 2)]
    assert not granted(effects)
    on_e2 = [name for name, engine in running.items() if engine == "e2"]
    assert dispatched(agent.finish(2.0, on_e2[0])) == [("l0", "e2")]
    assert {n: agent.grants[n].engine for n in running} == running


def test_a_class_whose_engines_are_down_is_merged_at_once_and_parted_again() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(3))
    effects = agent.step(1.0, EngineWentDown("e1", "gone"))
    assert any(isinstance(e, LayoutSwitched) for e in effects)
    assert dispatched(effects) == [("s2", "e2")]
    assert dispatched(agent.submit(1.0, *lax(1))) == [("l0", "e2")]
    agent.finish(1.5, "s0")
    effects = agent.up(2.0, engine("e1"))
    assert agent.state.queue.lanes == (0, 1)
    assert any(isinstance(e, LayoutSwitched) for e in effects)
    assert dispatched(agent.submit(2.0, *lax(1, first=5), *strict(1, first=5))) == [("s5", "e1")]


def test_a_suspected_engine_counts_as_down() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(1))
    agent.fail(1.0, "s0", retryable=False, stalled=True)
    assert agent.state.queue.lanes == (1,)
    assert dispatched(agent.submit(1.0, *strict(1, first=1))) == [("s1", "e2")]


def test_a_stricter_class_helps_out_while_it_has_slack() -> None:
    agent = split_worker()
    agent.step(0.0, sampled("e1", step_s=0.02))
    effects = agent.submit(0.0, *lax(4))
    assert dispatched(effects) == [("l0", "e2"), ("l1", "e2"), ("l2", "e1")]  # one prompt at a time
    agent.step(0.0, sampled("e1", step_s=0.06))
    agent.first_token(0.1, "l2")
    assert not dispatched(agent.step(0.1, CycleTicked()))  # its steps take too long to help


def test_a_stricter_class_does_not_help_out_with_relegated_requests() -> None:
    agent = split_worker()
    agent.submit(0.0, *lax(3))
    entry = agent.state.queue.get("l2")
    assert entry is not None
    entry.relegated = True
    assert not dispatched(agent.step(0.1, sampled("e1", step_s=0.02)))
    entry.relegated = False
    assert dispatched(agent.step(0.2, CycleTicked())) == [("l2", "e1")]


@pytest.mark.parametrize("topology", [TopologyName.MAX_ON_TIME, TopologyName.HYBRID])
def test_what_is_late_waits_behind_the_laxest_class(topology: TopologyName) -> None:
    agent = split_worker()
    agent.step(0.0, decided(2, topology=topology))
    agent.submit(0.0, *strict(4), *(paced(f"l{i}", 0.3, ttft_s=60.0) for i in range(3)))
    for name in ("s0", "s1", "l0", "l1"):
        agent.first_token(0.1, name)
    queue = agent.state.queue
    assert [queue.waiting_in(lane) for lane in (0, 1)] == [2, 1]
    assert not dispatched(agent.finish(6.0, "s0")), "e1 has room for what can be on time, and s2 and s3 had 4 s"
    assert [queue.waiting_in(lane) for lane in (0, 1)] == [0, 3]
    assert dispatched(agent.submit(6.1, replace(paced("s4", 0.05), arrival_s=6.1))) == [("s4", "e1")]
    assert dispatched(agent.finish(6.2, "l0")) == [("l2", "e2")]
    assert dispatched(agent.finish(6.3, "l1")) in ([("s2", "e2")], [("s3", "e2")])


def test_a_laxer_class_never_takes_the_strict() -> None:
    agent = split_worker()
    agent.step(0.0, sampled("e2", step_s=0.0))
    assert dispatched(agent.submit(0.0, *strict(4))) == [("s0", "e1"), ("s1", "e1")]


def test_what_failed_on_all_engines_of_its_class_goes_to_another() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(1))
    assert dispatched(agent.fail(1.0, "s0")) == [("s0", "e2")]


def test_a_class_whose_engine_its_gateway_cannot_reach_goes_to_another_at_once() -> None:
    """The worker still sees that engine, so that its class stays as it is."""
    agent = split_worker()
    agent.submit(0.0, *strict(1))
    assert dispatched(agent.fail(1.0, "s0", unreached=True)) == [("s0", "e2")]
    assert dispatched(agent.submit(1.5, *strict(1, first=1))) == [("s1", "e2")]
    assert dispatched(agent.submit(3.0, *strict(1, first=2))) == [("s2", "e1")]  # it is tried again now and then


def test_a_request_without_tags_waits_for_its_class_but_not_for_long() -> None:
    agent = split_worker()
    unknown = [replace(paced(name, 0.09), slo_stated=False) for name in ("u1", "u2")]
    assert not dispatched(agent.submit(0.0, *unknown))
    tags = annotation(slo=Slo(10.0, 0.15))
    assert dispatched(agent.annotate(0.1, "u1", tags)) == [("u1", "e2")]
    assert not dispatched(agent.step(0.2, CycleTicked()))
    assert dispatched(agent.step(0.31, CycleTicked())) == [("u2", "e1")]


def test_late_tags_change_the_lane_of_what_waits() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(2), replace(paced("u", 0.09), slo_stated=False))
    agent.step(0.5, CycleTicked())
    assert agent.state.queue.waiting_in(0) == 1
    assert dispatched(agent.annotate(0.6, "u", annotation(slo=Slo(10.0, 0.15)))) == [("u", "e2")]


def test_bypass_and_expiry_mix_all_again() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(3))
    assert dispatched(agent.step(1.0, decided(2, bypass=True))) == [("s2", "e2")]
    agent = split_worker()
    agent.submit(0.0, *strict(3))
    assert dispatched(agent.step(16.0, CycleTicked())) == [("s2", "e2")]


def test_a_layout_expires_by_itself_and_an_older_one_is_not_taken() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(3))
    agent.step(10.0, decided(2))
    agent.step(10.0, laid_out(MIXED, seq=0))
    assert len(agent.state.lanes) == 2
    effects = agent.step(16.0, CycleTicked())
    assert [e.control for e in effects if isinstance(e, ControlExpired)] == ["layout"]
    assert dispatched(effects) == [("s2", "e2")]
    assert agent.state.queue.topology is TopologyName.EDF


def test_a_repeated_layout_holds_longer_and_does_nothing_else() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(3))
    assert agent.step(10.0, laid_out(SPLIT)) == []
    agent.step(16.0, CycleTicked())
    assert len(agent.state.lanes) == 2


def test_the_heartbeat_says_which_layout_is_in_force() -> None:
    told = [e.heartbeat for e in split_worker().step(0.0, HeartbeatDue()) if isinstance(e, PublishHeartbeat)]
    assert told[0].layout == SPLIT


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("submit"), st.sampled_from([0.05, 0.09, 0.12, 0.2])),
            st.tuples(st.just("finish"), st.integers(0, 50)),
            st.tuples(st.just("down"), st.sampled_from(["e1", "e2", "e3"])),
            st.tuples(st.just("up"), st.sampled_from(["e1", "e2", "e3"])),
            st.tuples(
                st.just("layout"),
                st.sampled_from([MIXED, SPLIT, THREE, UNNAMED]),
            ),
        ),
        max_size=40,
    )
)
def test_nothing_is_lost_whatever_engines_and_layouts_do(script: list[tuple[str, object]]) -> None:
    agent = Scripted(CONFIG, *(engine(name) for name in ("e1", "e2", "e3")))
    open_ids: set[str] = set()
    now_s, seq = 0.0, 0
    for act, what in script:
        now_s, seq = now_s + 0.01, seq + 1
        match act:
            case "submit":
                assert isinstance(what, float)
                open_ids.add(f"r{seq}")
                agent.submit(now_s, paced(f"r{seq}", what))
            case "finish":
                running = running_of(agent)
                if running:
                    name = running[int(str(what)) % len(running)]
                    open_ids.discard(name)
                    agent.finish(now_s, name)
            case "down":
                agent.step(now_s, EngineWentDown(str(what), "gone"))
            case "up":
                agent.up(now_s, engine(str(what)))
            case "layout":
                assert isinstance(what, Layout)
                agent.step(now_s, laid_out(what, seq=seq))
        held = {entry.request.id for entry in agent.state.queue.entries()}
        assert held == open_ids
        queued = agent.state.queue
        assert sum(queued.waiting_in(lane) for lane in queued.lanes) == queued.ready
    for name in ("e1", "e2", "e3"):
        agent.up(now_s, engine(name))
    for _ in range(200):
        now_s += 0.1
        agent.step(now_s, CycleTicked())
        for name in running_of(agent):
            open_ids.discard(name)
            agent.finish(now_s, name)
    assert not open_ids


def test_each_engine_is_held_to_the_slos_of_the_class_that_it_serves() -> None:
    """While a class has no engine, another's is held to the SLOs of both; here the tightest is worth keeping."""
    agent = split_worker()
    agent.submit(0.0, *strict(6), *lax(6))
    agent.step(5.0, CycleTicked())
    assert [e.step_room.worthy_slo_s for e in agent.state.up] == [0.05, 0.15]
    agent.step(5.0, EngineWentDown("e1", "gone"))
    agent.step(10.0, CycleTicked())
    assert [e.step_room.worthy_slo_s for e in agent.state.up] == [0.05]


def two_paces() -> Scripted:
    """A worker whose engines run a request each: e1 in steps of 50 ms, e2 in steps of 120 ms."""
    agent = split_worker(MIXED)
    agent.submit(0.0, paced("on-e1", 0.2), paced("on-e2", 0.2))
    agent.step(0.0, sampled("e1", running=1, step_s=0.05))
    agent.step(0.0, sampled("e2", running=1, step_s=0.12))
    return agent


def test_a_request_waits_for_an_engine_that_keeps_its_tpot_slo_rather_than_run_on_a_slow_one() -> None:
    agent = two_paces()
    assert dispatched(agent.submit(0.0, *lax(1))) == [("l0", "e1")]
    assert not dispatched(agent.submit(0.1, paced("s0", 0.08)))
    assert dispatched(agent.finish(0.2, "l0")) == [("s0", "e1")]
    assert dispatched(agent.submit(0.3, *lax(1, first=1))) == [("l1", "e2")]


def test_a_slow_engine_serves_a_request_that_no_other_can_take_or_that_cannot_be_on_time() -> None:
    agent = two_paces()
    agent.step(0.1, sampled("e1", running=1, step_s=0.1))
    agent.submit(0.1, *lax(1))
    assert dispatched(agent.submit(0.1, paced("s0", 0.08))) == [("s0", "e2")], "no engine keeps it"
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    agent.submit(0.0, paced("s0", 0.08))
    assert dispatched(agent.step(0.1, EngineWentDown("e1", "gone"))) == [("s0", "e2")]


def whole(name: str, ttlt_s: float) -> Request:
    """A request that is judged by its last token alone, whose default TPOT SLO says nothing of its pace."""
    return replace(request(name, slo=Slo(4.0, 0.1, ttlt_s, whole=True)), slo_stated=True)


def test_one_judged_by_its_last_token_needs_the_pace_that_its_ttlt_leaves_its_predicted_length() -> None:
    agent = two_paces()
    agent.submit(0.0, *lax(1))  # e1 is full
    assert dispatched(agent.submit(0.0, whole("r1", 80.0))) == [("r1", "e2")], "any engine keeps 80 s"
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    assert not dispatched(agent.submit(0.0, replace(whole("r1", 6.0), max_tokens=60))), (
        "100 ms a token, and e2 takes 120"
    )
    assert dispatched(agent.finish(0.2, "l0")) == [("r1", "e1")]


def test_the_pace_class_of_one_judged_by_its_last_token_follows_its_predicted_length() -> None:
    agent = split_worker()
    agent.submit(0.0, *strict(2), *lax(2))  # all places are taken, so that it waits for its tags
    agent.submit(0.0, whole("r1", 12.0))
    lanes = []
    for tokens in (100.0, 130.0):  # 115 and 88 ms a token, at a cut of 100
        agent.annotate(0.0, "r1", annotation(tokens, ttft_s=0.5, slo=Slo(4.0, 0.1, 12.0, whole=True)))
        lanes += [entry.lane for entry in agent.state.queue.entries() if entry.request.id == "r1"]
    assert lanes == [1, 0]


@pytest.mark.parametrize("topology", [TopologyName.FCFS, TopologyName.EDF])
def test_no_request_waits_longer_than_its_ttft_slo_for_a_quick_engine(topology: TopologyName) -> None:
    agent = two_paces()
    agent.step(0.0, decided(2, topology=topology))
    agent.submit(0.0, *lax(1))
    assert not dispatched(agent.submit(0.0, paced("s0", 0.08, ttft_s=2.0), *lax(1, first=1)))
    for name, step_s in (("e1", 0.05), ("e2", 0.12)):
        agent.step(1.9, sampled(name, running=1, step_s=step_s))
    assert not dispatched(agent.step(1.9, CycleTicked()))
    for name, step_s in (("e1", 0.05), ("e2", 0.12)):
        agent.step(2.1, sampled(name, running=1, step_s=step_s))
    agent.step(2.1, CycleTicked())
    assert agent.grants["s0"].engine == "e2"


def test_a_suspected_engine_is_not_the_quick_one() -> None:
    agent = split_worker(MIXED, "e1", "e2", "e3")
    agent.submit(0.0, *[paced(f"on-{i}", 0.2) for i in range(3)])
    suspect = agent.grants["on-2"].engine
    agent.fail(0.1, "on-2", retryable=False, stalled=True)
    quick, slow = (name for name in ("e1", "e2", "e3") if name != suspect)
    for name, step_s, running in ((quick, 0.05, 1), (slow, 0.12, 1), (suspect, 0.0, 0)):
        agent.step(60.0, sampled(name, running=running, step_s=step_s))
    assert dispatched(agent.submit(60.0, *lax(1))) == [("l0", quick)]
    assert not dispatched(agent.submit(60.0, paced("s0", 0.08, ttft_s=100.0)))
    assert dispatched(agent.finish(60.1, "l0")) == [("s0", quick)]


def test_nobody_waits_for_an_engine_of_which_no_news_has_come() -> None:
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    agent.step(0.1, sampled("e1", running=2, step_s=0.1))
    agent.step(0.1, EngineWentUp(engine("e3")))
    assert dispatched(agent.submit(0.1, paced("s0", 0.08))) == [("s0", "e2")]


def test_what_generates_nothing_runs_on_any_engine() -> None:
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    assert dispatched(agent.submit(0.0, request("p0", slo=Slo(4.0, 0.08), max_tokens=0))) == [("p0", "e2")]


def test_an_idle_engine_and_one_not_sampled_lately_are_not_slow() -> None:
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    agent.finish(0.1, "on-e2")
    assert dispatched(agent.submit(0.1, paced("s0", 0.08))) == [("s0", "e2")]
    agent = two_paces()
    agent.submit(0.0, *lax(1))
    assert dispatched(agent.submit(60.0, paced("s0", 0.08))) == [("s0", "e2")]


def test_the_load_tells_the_step_of_the_quickest_engine_unless_one_is_idle() -> None:
    agent = two_paces()
    ((_, told),) = loads(agent.step(0.1, HeartbeatDue()))
    assert told.step_s == 0.05
    agent.finish(0.2, "on-e2")
    ((_, told),) = loads(agent.step(0.3, HeartbeatDue()))
    assert told.step_s == 0.0


def test_two_lanes_keep_their_own_slots_though_requests_come_one_by_one() -> None:
    agent = Scripted(replace(CONFIG, static_n_run=4), engine("e1"))
    hints = Hints(lane_gate_s=1.0, fast_slots=0.5)
    agent.step(0.0, decided(topology=TopologyName.TWO_LANE, hints=hints))

    def come(name: str, tokens: float) -> list[tuple[str, str]]:
        effects = agent.submit(0.0, request(name))
        return dispatched(effects + agent.annotate(0.0, name, annotation(tokens, ttft_s=0.01, tpot_s=0.1)))

    started = [come(f"slow{number}", 90.0) for number in range(3)] + [come(f"fast{number}", 5.0) for number in range(3)]
    assert running_of(agent) == ["fast0", "fast1", "slow0", "slow1"], started
    assert {row.request_id: row.start_s for row in in_force(agent.agent.queue_view())} == {"slow2": None, "fast2": None}
    assert dispatched(agent.finish(1.0, "fast0")) == [("fast2", "e1")]
    assert dispatched(agent.finish(1.0, "slow0")) == [("slow2", "e1")]
