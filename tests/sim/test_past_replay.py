"""A replay of past requests begins with what ran and what waited then, and tells agents no more than they knew."""

from dataclasses import replace

import pytest

from hmas.contracts.control import Split, TopologyName
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import PastLayout, Policy
from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.laws.request_rows import RequestRow
from hmas.sim.past.replay import LEAD_S, RESUME_S, Scene, replay_of, workload_of
from tests.sim.sim_cases import SMALL

MOT = Policy(topology=TopologyName.MAX_ON_TIME)
BEGIN_S, RETURN_S, JUDGED_S = -100.0, 55.0, -40.0


def row(arrival_s: float, ttft_s: float | None = None, last_token_s: float | None = None) -> RequestRow:
    return RequestRow(
        arrival_s=arrival_s, tenant="a", prompt_tokens=100, slo=Slo(4.0, 0.05), task=TaskType.QA,
        tagged_by=TagSource.MODEL, confidence=0.9, predicted_output_tokens=80.0, predicted_output_tokens_p90=160.0,
        max_tokens=200, outcome=None if last_token_s is None else Outcome.FINISHED,
        output_tokens=0 if last_token_s is None else 101, ttft_s=ttft_s, last_token_s=last_token_s,
    )  # fmt: skip


def scene(*rows: RequestRow, policy: Policy = MOT, layouts: tuple[PastLayout, ...] = ()) -> Scene:
    return Scene(
        rows=rows, window_s=60.0, profiles=(SMALL, SMALL), workers=1, in_force=policy, layouts=layouts
    )  # fmt: skip


def test_what_had_ended_before_is_left_out() -> None:
    refused = replace(row(-105.0), outcome=Outcome.SLO_UNREACHABLE)
    assert replay_of(scene(row(-110.0, 1.0, 9.0), refused), BEGIN_S, RETURN_S, JUDGED_S).rows == ()


def test_what_ran_goes_on_with_the_tokens_that_it_still_lacked() -> None:
    """It came 10 s before and has its first token after 2 s and its last one after 18 s, half of them by then."""
    replay = replay_of(scene(row(-110.0, 2.0, 18.0), row(-50.0, 1.0, 5.0)), BEGIN_S, RETURN_S, JUDGED_S)
    rest, young = replay.rows
    assert (replay.resumed, replay.young) == (1, (1,))
    assert rest.arrival_s == BEGIN_S - RESUME_S
    assert (rest.prompt_tokens, rest.output_tokens, rest.max_tokens) == (150, 51, 150)
    assert (rest.predicted_output_tokens, rest.predicted_output_tokens_p90) == (55.0, 110.0)
    assert rest.slo == row(0.0).slo  # it was on time
    assert young == row(-50.0, 1.0, 5.0)
    first, second = workload_of(replay.rows, (), 1, replay.resumed).requests
    assert first.request.arrival_s == LEAD_S
    assert (first.computed_tokens, second.computed_tokens) == (149, 0)


def test_of_what_still_runs_the_tokens_so_far_are_guessed() -> None:
    (rest,) = replay_of(scene(row(-110.0, 5.0)), BEGIN_S, RETURN_S, JUDGED_S).rows
    assert (rest.prompt_tokens, rest.output_tokens) == (200, 0)  # 5 s at 50 ms
    (longest,) = replay_of(scene(row(-990.0, 5.0)), BEGIN_S, RETURN_S, JUDGED_S).rows
    assert longest.prompt_tokens == 260  # no more than what was predicted
    assert rest.slo.ttft_s < 0.01  # its first token was late
    assert (rest.predicted_output_tokens, rest.predicted_output_tokens_p90) == (30.0, 60.0)


def test_what_waited_comes_back_with_what_is_left_of_its_time() -> None:
    rows = [row(-130.0 + i) for i in range(10)] + [row(-101.0, 3.0, 8.0)]
    replay = replay_of(scene(*rows), BEGIN_S, RETURN_S, JUDGED_S)
    *late, waits = sorted(replay.rows, key=lambda each: each.slo.ttft_s)
    assert len(late) == 10
    assert all(each.slo.ttft_s < 0.01 for each in late)
    assert max(each.arrival_s for each in late) == pytest.approx(BEGIN_S + RETURN_S * 9 / 11)
    assert (waits.arrival_s, waits.slo) == (BEGIN_S + 1.5, Slo(1.5, 0.05, 5.5))  # 3 s were left, of 8 in all
    assert waits.output_tokens == 101
    assert (replay.resumed, replay.young) == (0, ())


def test_agents_begin_with_what_had_ended_before_and_know_nothing_of_what_came_since() -> None:
    rows = row(-120.0, 2.0, 9.0), row(-50.0, 1.0, 5.0)
    replay = replay_of(scene(*rows), BEGIN_S, RETURN_S, JUDGED_S)
    (told,) = replay.learnt
    assert (told.prompt_tokens, told.output_tokens, told.age_s, told.run_s) == (100, 101, 11.0, 9.0)
    law = replay.step_time(SMALL.cost)
    assert law.sequence_s == pytest.approx(SMALL.cost.c_d_s + SMALL.cost.c_p_s * 100 / 101)
    other = replay_of(scene(rows[0], replace(rows[1], output_tokens=999)), BEGIN_S, RETURN_S, JUDGED_S)
    assert (other.learnt, other.step_time(SMALL.cost)) == (replay.learnt, law)


def test_layouts_are_those_that_were_in_force() -> None:
    split, other = Split((0.05,), (1, 1)), Split((0.08,), (1, 1))
    layouts = (PastLayout(500.0, Split()), PastLayout(30.0, other))
    policy = replace(MOT, split=split)
    replay = replay_of(scene(row(BEGIN_S + 1.0), policy=policy, layouts=layouts), BEGIN_S, RETURN_S, JUDGED_S)

    def laid(policy: Policy) -> list[tuple[float, Split]]:
        return list(replay.layouts(policy))

    assert laid(policy) == [(0.0, other), (pytest.approx(LEAD_S + 69.0), split)]
    assert laid(replace(policy, topology=TopologyName.EDF)) == laid(policy)
    assert laid(MOT) == [(0.0, Split())]
    assert laid(replace(policy, engines=3)) == [(0.0, split)]


def test_a_policy_with_more_engines_gets_the_same_mix_the_quickest_before_the_others() -> None:
    """Six engines that two workers get in turn: in the order of the workers' names, four of a kind and two of another.
    The regulator knows each engine's own steps."""
    slow = replace(SMALL, cost=replace(SMALL.cost, c0_s=9.0))
    replay = replay_of(
        replace(scene(row(-60.0, 1.0, 9.0)), profiles=(SMALL, SMALL, slow), workers=2), BEGIN_S, RETURN_S, JUDGED_S
    )
    setup = replay.setup(replace(MOT, engines=6))
    (pool,) = setup.pools
    assert ([pool.profiles[i] is slow for i in (0, 2, 4, 1, 3, 5)], pool.workers) == ([False] * 4 + [True] * 2, 2)
    assert [step.base_s for _, step in setup.statera_config.band.steps.known] == [p.cost.c0_s for p in pool.profiles]
