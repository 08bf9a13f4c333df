"""Orders that know jobs: Maestro's, and MaxOnTime's plan for jobs with a budget."""

from dataclasses import replace

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.job import JobFacts
from hmas.contracts.request import Slo
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.topologies import TOPOLOGIES, Topology
from tests.worker.builders import entry, request


def staged(seq: int, *, own: float = 100.0, future: float = 0.0, left_s: float | None = None) -> QueueEntry:
    """An entry whose stage answers `own` tokens and whose job needs `future` more after it; no prompt counts."""
    facts = JobFacts(
        job=f"j{seq}", index=0, left_s=left_s, output_tokens=own, output_tokens_p90=own, future_output_tokens=future
    )
    slo = Slo(1.0, 1.0, left_s, True) if left_s is not None else Slo(1000.0, 1.0)
    return entry(seq, replace(request(f"r{seq}", prompt_tokens=1, arrival_s=0.0, slo=slo), job=facts))


def make(name: TopologyName) -> Topology:
    return TOPOLOGIES[name](Hints())


def order(topology: Topology, entries: list[QueueEntry]) -> list[str]:
    for each in entries:
        topology.push(each)
    topology.observe(ServiceView(0.0, (), 0.0))
    ids = []
    while (head := topology.pop()) is not None:
        ids.append(head.request.id)
    return ids


def test_maestro_orders_by_what_the_whole_job_still_needs() -> None:
    entries = [staged(1, own=50, future=900), staged(2, own=300), staged(3, own=20, future=100)]
    assert order(make(TopologyName.MAESTRO), entries) == ["r3", "r2", "r1"]


def test_maestro_lets_what_waits_age() -> None:
    fresh, old = staged(1, own=100), staged(2, own=110)
    fresh.request = replace(fresh.request, arrival_s=60.0)
    assert order(make(TopologyName.MAESTRO), [fresh, old]) == ["r2", "r1"]


def test_a_length_known_of_the_stage_replaces_the_priors() -> None:
    assert staged(1, own=70).predicted_tokens == 70
    assert entry(2).predicted_tokens == 50


def test_of_jobs_that_cannot_all_be_on_time_the_one_with_the_most_left_is_given_up() -> None:
    entries = [staged(1, own=300, future=90_000, left_s=8.0), staged(2, own=100, left_s=9.0)]
    assert order(make(TopologyName.MAX_ON_TIME), entries) == ["r2", "r1"]
    assert [each.relegated for each in entries] == [True, False]
    plain = [staged(1, own=300, left_s=8.0), staged(2, own=100, left_s=9.0)]
    assert order(make(TopologyName.MAX_ON_TIME), plain) == ["r1", "r2"]


def test_without_a_budget_what_follows_changes_no_plan() -> None:
    entries = [staged(1, own=100, future=90_000), staged(2, own=300)]
    assert order(make(TopologyName.MAX_ON_TIME), entries) == ["r1", "r2"]
    assert not entries[0].relegated
