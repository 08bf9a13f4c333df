"""Niyama's mechanisms, one by one, and that none loses a request."""

from math import inf
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.niyama.systems import SYSTEMS
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.engine.core import EngineCore
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.sequence import Sequence
from hmas.sim.processes.fleet import EngineFleet, FleetSetting
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.baselines.niyama import NiyamaConfig, NiyamaCore
from hmas_lab.sim.baselines.niyama_client import cumulative, due_s, paced
from hmas_lab.sim.baselines.niyama_queue import NiyamaQueue, NiyamaRequest
from tests.conftest import examples
from tests.sim.sim_cases import SMALL, offered, random_workload

PREFILL_TOKENS_PER_S = 1000.0


def waiting(name: int, prompt: int, due_s: float, *, important: bool = True, arrival_s: float = 0.0) -> Sequence:
    request = NiyamaRequest(
        f"r{name}", prompt, 1, arrival_s=arrival_s, due_s=due_s, application="a", important=important
    )
    return Sequence(request, name, 1, prompt)


def queue(*, relegation: bool = True, alpha: float = 0.0, now_s: float = 0.0) -> NiyamaQueue:
    made = NiyamaQueue(lambda seq: (seq.target - seq.context) / PREFILL_TOKENS_PER_S, relegation=relegation)
    made.alpha, made.now_s = alpha, now_s
    return made


def drained(made: NiyamaQueue) -> list[str]:
    order = []
    while made.peek() is not None:
        order.append(made.pop().id)
    return order


def test_alpha_moves_the_order_from_edf_to_the_shortest_first() -> None:
    long_soon, short_late = waiting(0, 4000, 5.0), waiting(1, 100, 6.0)
    for alpha, order in ((0.0, ["r0", "r1"]), (8.0, ["r1", "r0"])):
        made = queue(alpha=alpha)
        made.push(long_soon)
        made.push(short_late)
        assert drained(made) == order


def test_a_change_of_alpha_reorders_what_waits() -> None:
    made = queue()
    made.push(waiting(0, 4000, 5.0))
    made.push(waiting(1, 100, 6.0))
    made.alpha = 8.0
    assert drained(made) == ["r1", "r0"]


def test_what_will_be_late_steps_behind_all_others_and_is_served_at_last() -> None:
    made = queue(now_s=4.5)
    made.push(waiting(0, 1000, 5.0))  # needs a second of the half that is left
    made.push(waiting(1, 1000, 60.0))
    assert drained(made) == ["r1", "r0"]
    assert made.relegations == 1


def test_without_relegation_the_late_go_first() -> None:
    made = queue(relegation=False, now_s=4.5)
    made.push(waiting(0, 1000, 5.0))
    made.push(waiting(1, 1000, 60.0))
    assert drained(made) == ["r0", "r1"]


def test_low_priority_steps_aside_before_an_important_request_is_late() -> None:
    made = queue(now_s=4.0)
    made.push(waiting(0, 100, 4.9, important=False))
    made.push(waiting(1, 100, 5.0))  # 0.9 of its 5 seconds are left to spare
    made.push(waiting(2, 100, 50.0))
    assert drained(made) == ["r1", "r2", "r0"]


def test_with_time_to_spare_low_priority_keeps_its_turn() -> None:
    made = queue(now_s=1.0)
    made.push(waiting(0, 100, 4.9, important=False))
    made.push(waiting(1, 100, 5.0))
    assert drained(made) == ["r0", "r1"]


def test_relegated_requests_that_may_still_be_in_time_go_before_the_late() -> None:
    made = queue(now_s=4.0)
    made.push(waiting(0, 100, 3.0))  # late
    made.push(waiting(1, 100, 4.5, important=False))  # in time, if it is served soon
    made.push(waiting(2, 100, 5.0))  # at risk, so r1 steps aside
    assert drained(made) == ["r2", "r1", "r0"]


def test_a_removed_request_is_gone() -> None:
    made = queue()
    sequences = [waiting(i, 10, 5.0 + i) for i in range(3)]
    for seq in sequences:
        made.push(seq)
    made.remove(sequences[1])
    assert len(made) == 2
    assert drained(made) == ["r0", "r2"]


step = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 5000), st.floats(0.1, 60.0), st.booleans()),
    st.tuples(st.just("pop")),
    st.tuples(st.just("wait"), st.floats(0.0, 20.0)),
    st.tuples(st.just("alpha"), st.sampled_from([0.0, 1.0, 64.0])),
)


@given(st.lists(step, max_size=60), st.booleans())
def test_each_request_leaves_once_and_in_time_ones_before_late_ones(script: list[tuple], relegation: bool) -> None:  # type: ignore[type-arg]
    made, pushed, popped = queue(relegation=relegation), 0, []
    due: dict[str, float] = {}
    for kind, *values in script:
        if kind == "push":
            prompt, ttft_s, important = values
            seq = waiting(pushed, prompt, made.now_s + ttft_s, important=important, arrival_s=made.now_s)
            due[seq.id] = made.now_s + ttft_s - prompt / PREFILL_TOKENS_PER_S
            made.push(seq)
            pushed += 1
        elif kind == "wait":
            made.now_s += values[0]
        elif kind == "alpha":
            made.alpha = values[0]
        elif (head := made.peek()) is not None:
            assert made.pop() is head
            popped.append(head.id)
            if relegation and due.pop(head.id) < made.now_s:  # a late one is served when nobody can be in time
                assert all(latest_s < made.now_s for latest_s in due.values())
            due.pop(head.id, None)
    popped += drained(made)
    assert sorted(popped) == sorted(f"r{i}" for i in range(pushed))


TIGHT = Slo(6.0, 0.05)
BATCH = Slo(600.0, 600.0, 600.0, whole=True)


def first_tokens(core: EngineCore, requests: list[OfferedRequest], config: str = "niyama") -> dict[str, float]:
    result = EngineFleet(SYSTEMS[config], [core], Workload("w", tuple(requests), 10.0)).run()
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    return {s.request_id: s.ttft_s or inf for s in result.settlements}


def test_an_interactive_request_overtakes_a_half_computed_batch_prompt() -> None:
    profile = SMALL.with_limits(max_model_len=8192)
    batch, urgent = offered(0, 0.0, 6000, 5, BATCH), offered(1, 0.03, 50, 5, TIGHT)
    seen = first_tokens(NiyamaCore(profile, NiyamaConfig()), [batch, urgent])
    assert seen["r1"] < seen["r0"]


@pytest.mark.parametrize(("due_s", "first"), [(0.035, "r0"), (60.0, "r1")])
def test_a_half_computed_prompt_gives_way_unless_its_deadline_needs_this_step(due_s: float, first: str) -> None:
    """Selective preemption (§3.4)."""
    core = NiyamaCore(SMALL, NiyamaConfig(dynamic_chunking=False, alpha=(64.0, 64.0)))
    core.add(cumulative(offered(0, 0.0, 400, 5, Slo(due_s, 0.05))))
    core.step_begin(0.0)  # 256 of its tokens
    core.step_end()
    core.add(cumulative(offered(1, 0.0, 255, 5, Slo(0.2, 0.05))))
    core.step_begin(0.015)
    assert core.step_end().first == [first]


def test_chunks_grow_with_slack_and_tokens_stay_in_time() -> None:
    profile = SMALL.with_limits(max_model_len=8192, num_gpu_blocks=2048)
    requests = [offered(0, 0.0, 100, 60, TIGHT), offered(1, 0.1, 6000, 5, BATCH), offered(2, 0.1, 6000, 5, BATCH)]
    by_chunk = {}
    for name, dynamic in (("dc", True), ("edf", False)):
        core = NiyamaCore(profile, NiyamaConfig(dynamic_chunking=dynamic))
        result = EngineFleet(SYSTEMS["niyama"], [core], Workload("w", tuple(requests), 10.0)).run()
        by_chunk[name] = result.run.engine_steps
        last_s = next(s.last_token_s for s in result.settlements if s.request_id == "r0")
        assert last_s is not None
        assert last_s <= 6.0 + 59 * 0.05
    assert by_chunk["dc"] < by_chunk["edf"]


def test_output_lengths_are_remembered_by_application() -> None:
    core = NiyamaCore(SMALL, NiyamaConfig())
    requests = [offered(i, 0.1 * i, 50, 10 if i % 2 else 40, BATCH, tenant="ab"[i % 2]) for i in range(20)]
    first_tokens(core, requests)
    assert {name: (h.count, h.mean) for name, h in core.histories.items()} == {"a": (10, 40.0), "b": (10, 10.0)}


def test_what_the_client_says() -> None:
    chat, batch = offered(3, 2.0, 50, 9, TIGHT), offered(4, 2.0, 50, 9, BATCH)
    assert (due_s(chat), due_s(batch)) == (8.0, 602.0)
    assert cumulative(chat).pace == TokenDeadline(0.05, 8.0)  # Niyama Eq. 2
    assert paced(chat).pace == TokenDeadline(0.05)
    assert paced(batch).pace is None
    assert (cumulative(batch).whole, cumulative(batch).application) == (True, "t")


def test_requests_without_a_class_are_refused_with_a_reason() -> None:
    with pytest.raises(TypeError, match="NiyamaRequest"):
        NiyamaCore(SMALL, NiyamaConfig()).add(offered(0, 0.0, 10, 10).engine_request())


@settings(max_examples=examples(25))
@given(st.integers(0, 10_000), st.floats(1.0, 14.0), st.sampled_from(["dc", "dc+er", "niyama"]))
def test_every_request_finishes_whatever_the_load(seed: int, rate: float, name: str) -> None:
    draw = Random(seed)
    workload = random_workload(seed, rate, 8.0)
    slos = [Slo(1.0, 0.05), TIGHT, BATCH]
    requests = tuple(
        OfferedRequest(request=r.request, output_tokens=r.output_tokens, slo=draw.choice(slos), task=r.task)
        for r in workload.requests
    )
    core = SYSTEMS[name].core(SMALL, FleetSetting(seed))
    result = EngineFleet(SYSTEMS[name], [core], Workload("w", requests, 8.0)).run()
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    assert core.kv.free == SMALL.limits.num_gpu_blocks
    assert len(core.waiting) == 0
