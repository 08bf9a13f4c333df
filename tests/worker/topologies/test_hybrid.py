"""Hybrid: P of Niyama Eq. 4 and 5, relegation, low priority first, nobody starved, alpha within its hints."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.request import Slo
from hmas.worker.agent.config import ApplicationsConfig
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.estimates.applications import Applications
from hmas.worker.agent.order.topologies import TOPOLOGIES
from hmas.worker.agent.order.topologies.hybrid import Hybrid, HybridConfig, due_s, slack_s, work_s
from tests.worker.builders import annotation, entry, request

EDF = Hints(alpha_low=0.0, alpha_high=0.0)
CONFIG = HybridConfig()
APPLICATIONS = ApplicationsConfig()


def at(now_s: float) -> ServiceView:
    return ServiceView(now_s, ())


def chat(seq: int, prefill_s: float, ttft_s: float, *, arrival_s: float = 0.0, priority: int = 0) -> QueueEntry:
    made = entry(seq, request(f"r{seq}", arrival_s=arrival_s, priority=priority))
    made.annotate(annotation(10.0, ttft_s=prefill_s, tpot_s=0.01, slo=Slo(ttft_s, 0.1)))
    return made


def batch(seq: int, prefill_s: float, ttlt_s: float, tokens: float | None = 100.0) -> QueueEntry:
    made = entry(seq, request(f"r{seq}"))
    made.annotate(annotation(10.0, ttft_s=prefill_s, tpot_s=0.01, slo=Slo(ttlt_s, ttlt_s, ttlt_s, whole=True)))
    made.usual_tokens = tokens
    return made


def hybrid(hints: Hints, now_s: float, *entries: QueueEntry) -> Hybrid:
    made = Hybrid(hints, CONFIG)
    made.observe(at(now_s))
    for each in entries:
        made.push(each)
    return made


def order(topology: Hybrid) -> list[str]:
    ids = []
    while (head := topology.peek()) is not None:
        assert topology.pop() is head
        ids.append(head.request.id)
    return ids


def test_it_is_in_the_table() -> None:
    assert isinstance(TOPOLOGIES[TopologyName.HYBRID](Hints()), Hybrid)


def test_due_and_work_of_an_interactive_and_of_a_whole_answer() -> None:
    assert (due_s(chat(1, 2.0, 6.0)), work_s(chat(1, 2.0, 6.0))) == (6.0, 2.0)  # Eq. 4
    assert due_s(batch(2, 2.0, 600.0)) == 600.0
    assert work_s(batch(2, 2.0, 600.0)) == pytest.approx(3.0)  # Eq. 5
    unknown = batch(3, 2.0, 600.0, tokens=None)
    assert work_s(unknown) == pytest.approx(2.0 + 0.01 * unknown.predicted_p90)


def test_alpha_turns_deadline_order_into_the_shortest_first() -> None:
    for hints, expected in ((EDF, ["r0", "r1"]), (Hints(alpha_low=8.0, alpha_high=8.0), ["r1", "r0"])):
        long_soon, short_late = chat(0, 4.0, 10.0), chat(1, 0.1, 11.0)
        assert order(hybrid(hints, 0.0, long_soon, short_late)) == expected


def test_work_counts_less_for_what_is_worth_more() -> None:
    hints = Hints(alpha_low=8.0, alpha_high=8.0)
    long, short = chat(0, 1.0, 10.0), chat(1, 0.5, 10.0)
    assert order(hybrid(hints, 0.0, long, short)) == ["r1", "r0"]
    assert long.annotation is not None
    long.annotation = replace(long.annotation, utility=4.0)
    assert order(hybrid(hints, 0.0, long, short)) == ["r0", "r1"]


def test_what_will_be_late_is_relegated_and_served_last() -> None:
    late, fine = chat(0, 2.0, 5.0), chat(1, 2.0, 60.0)
    made = hybrid(EDF, 4.0, late, fine)
    assert order(made) == ["r1", "r0"]
    assert (late.relegated, fine.relegated) == (True, False)


def test_low_priority_waits_while_an_important_request_is_at_risk() -> None:
    def entries() -> list[QueueEntry]:
        return [chat(0, 0.1, 4.9, priority=1), chat(1, 0.1, 5.0), chat(2, 0.1, 50.0)]

    assert order(hybrid(EDF, 1.0, *entries())) == ["r0", "r1", "r2"]
    assert order(hybrid(EDF, 4.0, *entries())) == ["r1", "r0", "r2"]  # of r1's 5 seconds 0.9 are left


def test_alpha_rises_with_relegations_within_the_hints_and_falls_again() -> None:
    made = hybrid(Hints(alpha_low=0.0, alpha_high=4.0), 0.0)
    seen = []
    for second in range(1, 6):
        made.push(chat(second, 2.0, 1.0, arrival_s=second - 5.0))  # late at once
        assert made.pop() is not None
        made.observe(at(second + 0.5))
        seen.append(made.alpha)
    assert seen == [1.0, 2.0, 4.0, 4.0, 4.0]
    for second in range(10, 100):
        made.observe(at(float(second)))
    assert made.alpha == 0.0


def test_a_move_of_alpha_reorders_all_that_waits_a_few_at_a_time() -> None:
    made = hybrid(Hints(alpha_low=0.0, alpha_high=64.0), 0.0)
    count = 3 * CONFIG.moves
    for seq in range(count):
        made.push(chat(seq, 1.0 + (seq % 7) * 0.001, 1000.0))
    made.push(chat(count, 2.0, 1.0))
    assert made.peek() is not None  # the late one was relegated
    for step in range(4):
        made.observe(at(1.5 + step * 0.01))
    assert made.alpha == 1.0
    taken = [made.pop() for _ in range(count)]
    work = [e.prefill_s for e in taken if e is not None and not e.relegated]
    assert work == sorted(work)


def test_relegated_requests_get_a_share_while_others_wait() -> None:
    made = hybrid(EDF, 100.0, chat(0, 1.0, 1.0))
    for seq in range(1, 300):
        made.push(chat(seq, 1.0, 10_000.0 + seq))
    assert "r0" in order(made)[:250]


def test_where_more_are_late_than_may_be_moved_at_once_a_late_one_goes_meanwhile() -> None:
    made = hybrid(EDF, 100.0)
    for seq in range(CONFIG.moves + 10):
        made.push(chat(seq, 1.0, 1.0))
    made.push(chat(CONFIG.moves + 10, 1.0, 1000.0))
    late = made.pop()
    assert late is not None
    assert late.request.id == f"r{CONFIG.moves}"
    assert not late.relegated
    made.observe(at(100.1))
    head = made.peek()
    assert head is not None
    assert head.request.id == f"r{CONFIG.moves + 10}"


action = st.one_of(
    st.tuples(st.just("push"), st.floats(0.01, 5.0), st.floats(0.1, 60.0), st.integers(-1, 1)),
    st.tuples(st.just("pop")),
    st.tuples(st.just("remove"), st.integers(0, 30)),
    st.tuples(st.just("annotate"), st.integers(0, 30), st.floats(0.01, 5.0)),
    st.tuples(st.just("wait"), st.floats(0.0, 15.0)),
)


@given(st.lists(action, max_size=80), st.sampled_from([EDF, Hints(), Hints(alpha_low=3.0, alpha_high=3.0)]))
def test_each_entry_leaves_once_and_nothing_late_before_what_is_in_time(script: list[tuple], hints: Hints) -> None:  # type: ignore[type-arg]
    made, now_s, queued, seq = hybrid(hints, 0.0), 0.0, dict[str, QueueEntry](), 0
    for kind, *values in script:
        match kind:
            case "push":
                prefill_s, ttft_s, priority = values
                each = chat(seq, prefill_s, ttft_s, arrival_s=now_s, priority=priority)
                queued[each.request.id] = each
                made.push(each)
                seq += 1
            case "pop":
                if (head := made.peek()) is not None:
                    assert made.pop() is head
                    del queued[head.request.id]
                    assert head.relegated or slack_s(head, now_s) >= 0.0
            case "remove":
                if (name := f"r{values[0]}") in queued:
                    made.remove(queued.pop(name))
            case "annotate":
                if (found := queued.get(f"r{values[0]}")) is not None:
                    found.annotate(annotation(10.0, ttft_s=values[1], tpot_s=0.01, slo=found.slo))
                    made.reannotate(found)
            case "wait":
                now_s += values[0]
                made.observe(at(now_s))
        assert len(made) == len(queued)
        assert {e.request.id for e in made} == set(queued)
    assert sorted(order(made)) == sorted(queued)


def test_applications_remember_what_their_answers_seldom_exceed() -> None:
    known = Applications(APPLICATIONS)
    mine, other = request("a", tenant="t1"), request("b", tenant="t2")
    for tokens in [10, 20] * APPLICATIONS.min_count:
        known.learn(mine, tokens)
    assert known.usual_tokens(mine) == pytest.approx(15 + 2 * 5, rel=0.01)
    assert known.usual_tokens(other) is None


def test_a_tenant_with_many_applications_forgets_its_own() -> None:
    known, busy = Applications(APPLICATIONS), request("a", tenant="busy")
    once, kept = request("a", tenant="many", flow="once"), request("a", tenant="many", flow="kept")
    for each in (busy, once, kept):
        for _ in range(APPLICATIONS.min_count):
            known.learn(each, 5)
    for number in range(APPLICATIONS.max_applications):
        known.learn(request("a", tenant="many", flow=f"f{number}"), 5)
        if number % 1000 == 0:
            known.learn(kept, 5)
    assert [known.usual_tokens(each) for each in (busy, once, kept)] == [pytest.approx(5.0), None, pytest.approx(5.0)]


def test_a_new_tenant_finds_room_at_the_one_with_the_most_applications() -> None:
    config = ApplicationsConfig(min_count=1, max_applications=4)
    known = Applications(config)
    few = request("a", tenant="few")
    many = [request("a", tenant="many", flow=flow) for flow in ("1", "2", "3")]
    new = request("a", tenant="new")
    for each in (few, *many, new):
        known.learn(each, 7)
    assert [known.usual_tokens(each) for each in (few, *many, new)] == [7.0, None, 7.0, 7.0, 7.0]


def test_applications_are_bounded() -> None:
    known = Applications(APPLICATIONS)
    for tenant in range(APPLICATIONS.max_applications + 10):
        for _ in range(APPLICATIONS.min_count):
            known.learn(request("a", tenant=f"t{tenant}"), 5)
    assert known.usual_tokens(request("a", tenant="t0")) is None
    assert known.usual_tokens(request("a", tenant=f"t{APPLICATIONS.max_applications + 9}")) == pytest.approx(5.0)
