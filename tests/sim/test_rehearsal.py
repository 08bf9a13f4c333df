"""A rehearsal knows what happened, what another policy would have done, and when it does not know."""

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts, Rehearsal, SloChange
from hmas.contracts.request import TagSource
from hmas.laws.request_rows import RequestRow, unpack
from hmas.sim.past.rehearsal import MIN_REQUESTS, rehearse, spread
from hmas.sim.past.rehearse import RehearsalQuestion, answer, parse_answer, question_lines
from hmas.sim.past.replay import Scene, output_tokens, workload_of
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL
from hmas.sim.workload import Workload
from hmas_lab.sim.systems import MESHES
from tests.sim.sim_cases import SMALL, random_workload

FCFS, EDF, MOT = (Policy(topology=t) for t in (TopologyName.FCFS, TopologyName.EDF, TopologyName.MAX_ON_TIME))
WINDOW_S = 90.0
ENGINE = PoolEngine(max_num_seqs=16, max_model_len=4096, kv_capacity_tokens=8192, block_size=16)
FACTS = PoolFacts(engines=(ENGINE, ENGINE), workers=1)


def workload() -> Workload:
    return random_workload(3, 34.0, 30.0)


def ran(topology: TopologyName) -> MeshSim:
    sim = MeshSim(replace(MESHES["hmas-noisy"], pin=topology), SMALL, 2, workload(), 3)
    sim.run()
    return sim


@cache
def past(topology: TopologyName = TopologyName.FCFS) -> tuple[RequestRow, ...]:
    """The ring of a run, with instants before its end, without the last request, whose end was not reported any
    more."""
    sim = ran(topology)
    blocks = sim.control.qos.past(sim.heap.now_s, POOL, 1e9)
    rows = [
        replace(row, arrival_s=row.arrival_s - b.age_s)
        for b in blocks
        for row in unpack(b.rows)
        if row.outcome is not None
    ]
    return tuple(sorted(rows, key=lambda row: row.arrival_s))


def scene(rows: tuple[RequestRow, ...] | None = None, in_force: Policy = FCFS) -> Scene:
    rows = past() if rows is None else rows
    return Scene(rows=rows, window_s=WINDOW_S, profiles=(SMALL, SMALL), workers=1, in_force=in_force)


@cache
def rehearsed() -> Rehearsal:
    return rehearse(scene(), [FCFS, MOT])


def test_the_ring_of_a_run_holds_every_request() -> None:
    assert len(past()) >= len(workload().requests) - 5
    assert {row.outcome for row in past()} == {Outcome.FINISHED}
    assert {row.topology for row in past() if row.arrival_s > past()[0].arrival_s + 2.0} == {"fcfs"}
    assert {row.tagged_by for row in past()} <= {TagSource.MODEL, TagSource.PRIOR, None}


@pytest.mark.long
def test_what_is_in_force_is_as_it_was_and_gains_nothing_over_itself() -> None:
    found = rehearsed()
    assert not found.abstains
    assert abs(found.in_force.on_time - found.observed.on_time) <= 0.03
    same = found.candidates[0]
    assert (same.gain, same.low, same.high) == (0.0, 0.0, 0.0)


def test_a_switch_that_is_then_made_brings_what_was_predicted() -> None:
    (_, candidate) = rehearsed().candidates
    made = past(TopologyName.MAX_ON_TIME)
    observed = sum(row.on_time for row in made) / len(made)
    assert candidate.low <= candidate.gain <= candidate.high
    assert candidate.gain > 0.05
    assert abs(candidate.figures.on_time - observed) <= 0.05


def test_the_gains_of_tenants_add_up_to_the_gain() -> None:
    for candidate in rehearsed().candidates:
        tenants = candidate.tenants
        assert [gain.tenant for gain in tenants] == [share.tenant for share in candidate.figures.tenants]
        assert all(gain.low <= gain.gain <= gain.high for gain in tenants)
        requests = sum(gain.requests for gain in tenants)
        assert sum(gain.requests * gain.gain for gain in tenants) / requests == pytest.approx(candidate.gain)
    assert len(rehearsed().candidates[1].tenants) > 1


@pytest.mark.long
def test_it_abstains_where_the_simulation_is_not_what_happened() -> None:
    late = tuple(replace(row, ttft_s=99.0) if i % 4 else row for i, row in enumerate(past()))
    found = rehearse(scene(late), [MOT])
    assert "misses by" in found.abstains
    assert found.candidates  # they are told, and not to be believed


def test_it_abstains_on_few_requests_and_judges_none_of_before_a_switch() -> None:
    assert f"fewer than {MIN_REQUESTS}" in rehearse(scene(past()[-20:]), [MOT]).abstains
    assert rehearse(scene(in_force=EDF), [MOT]).observed.requests == 0
    half = len(past()) // 2
    switched = tuple(replace(row, topology="edf") for row in past()[:half]) + past()[half:]
    switched = tuple(row for row in switched if row.topology != "")
    found = rehearse(scene(switched), [])
    assert found.observed.requests == len(past()) - half
    assert found.window_s <= -switched[half - 1].arrival_s


def test_no_true_length_reaches_an_agent() -> None:
    """Rows with other lengths make the same requests, but for what the engine is to do."""
    other = [replace(row, output_tokens=row.output_tokens + 100) for row in past()]
    before, after = workload_of(past(), (), 1), workload_of(other, (), 1)
    assert [r.request for r in before.requests] == [r.request for r in after.requests]
    assert [r.recorded for r in before.requests] == [r.recorded for r in after.requests]
    assert [r.output_tokens for r in before.requests] != [r.output_tokens for r in after.requests]


def test_lengths_that_are_not_known_are_drawn_from_what_was_predicted() -> None:
    refused = replace(
        past()[0], outcome=Outcome.SLO_UNREACHABLE, output_tokens=0, predicted_output_tokens=100.0,
        predicted_output_tokens_p90=300.0, max_tokens=1000,
    )  # fmt: skip
    lengths = sorted(output_tokens(refused, Random(i)) for i in range(2000))
    assert lengths[1000] == pytest.approx(100, rel=0.1)
    assert lengths[1800] == pytest.approx(300, rel=0.15)
    assert lengths[-1] <= 1000
    cut = replace(refused, outcome=Outcome.CANCELLED, output_tokens=500)
    assert min(output_tokens(cut, Random(i)) for i in range(200)) == 500
    rows = tuple(replace(row, outcome=Outcome.SLO_UNREACHABLE) if i < 5 else row for i, row in enumerate(past()))
    assert rehearse(scene(rows), []).drawn == 5


def test_what_no_policy_changes_is_not_replayed() -> None:
    rows = tuple(replace(row, outcome=Outcome.TENANT_REQUEST_RATE) if i % 2 else row for i, row in enumerate(past()))
    assert rehearse(scene(rows), []).observed.requests == -(-len(rows) // 2)


@pytest.mark.long
def test_engines_and_slos_can_be_changed() -> None:
    strict = SloChange(name="t0", ttft_s=0.001)
    found = rehearse(scene(), [replace(FCFS, engines=4), replace(FCFS, slos=(strict,))])
    more, harder = found.candidates
    assert more.gain > 0.05
    shares = {share.tenant: share.on_time for share in harder.figures.tenants}
    assert shares["t0"] == 0.0
    assert shares["t1"] > 0.0


def test_the_process_is_asked_and_answers_in_lines() -> None:
    question = RehearsalQuestion(window_s=WINDOW_S, facts=FACTS, in_force=FCFS, candidates=(MOT,), profile=SMALL)
    first, _, rest = question_lines(question, past()).partition(b"\n")
    assert rest.count(b"\n") == len(past())
    assert b"candidates" in first
    found = answer(question, past())
    assert found.candidates == rehearse(scene(), [MOT]).candidates
    assert found.cpu_s > 0.0
    with pytest.raises(ValueError, match="JSON"):
        parse_answer(b"nonsense")


@pytest.mark.long
def test_a_token_budget_that_is_stated_is_simulated() -> None:
    question = RehearsalQuestion(window_s=WINDOW_S, facts=FACTS, in_force=FCFS, candidates=(), profile=SMALL)
    tight = answer(replace(question, max_num_batched_tokens=32), past()).in_force
    assert tight.ttft_p50_s > 1.5 * answer(question, past()).in_force.ttft_p50_s
    with pytest.raises(ValueError, match="at least max_num_seqs"):
        answer(replace(question, max_num_batched_tokens=2), past())


def test_a_scene_needs_engines_and_time() -> None:
    with pytest.raises(ValueError, match="without engines"):
        replace(scene(), profiles=())
    with pytest.raises(ValueError, match="longer than 0 s"):
        replace(scene(), window_s=0.0)


def test_ten_seconds_tell_no_spread() -> None:
    """Requests of one block of time shared one queue: their gain may be anything, however many they are."""
    assert spread([0.2] * 200, [0] * 200) == (-1.0, 1.0)
    assert spread([0.2] * 200, [0] * 100 + [1] * 100) == pytest.approx((0.2, 0.2))
