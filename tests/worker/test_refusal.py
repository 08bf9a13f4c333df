"""`on_miss: refuse`, and how little prefill an engine gets before it."""

from dataclasses import replace

import pytest

from hmas.contracts.control import StepTime, TopologyName
from hmas.contracts.job import PrefixChain
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, KindCost, Slo
from hmas.contracts.worker import CycleTicked, EngineWentUp, WorkerEffect
from hmas.worker.agent.agent import WorkerConfig
from tests.builders.control import topology_received
from tests.worker.builders import Scripted, annotation, engine, granted, refused, request, sampled

SLO = Slo(2.0, 0.1)


def agent(topology: TopologyName, **config: object) -> Scripted:
    made = Scripted(replace(WorkerConfig(worker="w1", incarnation="i1", address="", pool="m"), **config))  # type: ignore[arg-type]
    made.step(
        0.0,
        topology_received(topology, valid_for_s=1e6, reason="", selector=""),
    )
    made.up(0.0, engine("e1", max_num_seqs=4))
    return made


def submit(worker: Scripted, name: str, now_s: float, *, ttft_s: float, relegate: bool) -> list[WorkerEffect]:
    prompt = int(ttft_s * 8000)  # as the prior has it, before cognition answers
    made = replace(request(name, arrival_s=now_s, slo=SLO, prompt_tokens=prompt), relegate=relegate)
    tags = annotation(10.0, ttft_s=ttft_s, tpot_s=0.01, slo=SLO)
    return worker.submit(now_s, made) + worker.annotate(now_s, name, tags)


def dispatched(effects: list[WorkerEffect]) -> list[str]:
    return [grant.request_id for grant in granted(effects)]


@pytest.mark.parametrize("topology", [TopologyName.MAX_ON_TIME, TopologyName.FCFS])
def test_whoever_prefers_it_is_refused_once_it_would_be_late(topology: TopologyName) -> None:
    worker = agent(topology, static_n_run=1)
    effects = submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    for name, relegate in (("waits", True), ("rather not", False)):
        effects += submit(worker, name, 0.0, ttft_s=0.2, relegate=relegate)
    assert dispatched(effects) == ["first"]
    for tick in range(1, 40):
        effects += worker.step(tick * 0.1, CycleTicked())
    (refusal,) = refused(effects)
    assert (refusal.request_id, refusal.outcome) == ("rather not", Outcome.SLO_UNREACHABLE)
    assert "is due after 2 s" in refusal.message
    assert refusal.retry_after_s is not None
    assert dispatched(worker.finish(4.0, "first", 10)) == ["waits"]


def test_in_time_nobody_is_refused() -> None:
    worker = agent(TopologyName.MAX_ON_TIME)
    effects = submit(worker, "r", 0.0, ttft_s=0.2, relegate=False)
    for tick in range(1, 40):
        effects += worker.step(tick * 0.1, CycleTicked())
    assert (dispatched(effects), refused(effects)) == (["r"], [])


def test_an_engine_has_little_prefill_before_it() -> None:
    """The window counts what prompts add to a step; an idle engine takes any prompt."""
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    effects = submit(worker, "floor", 0.0, ttft_s=0.02, relegate=True)
    effects += worker.first_token(0.0, "floor")
    for name, ttft_s in (("a", 0.5), ("b", 0.05), ("c", 0.05)):
        effects += submit(worker, name, 0.0, ttft_s=ttft_s, relegate=True)
    assert dispatched(effects) == ["floor", "a"]  # more than the window, but alone
    assert dispatched(worker.first_token(0.6, "a")) == ["b", "c"]


def test_a_worker_that_is_late_itself_lets_as_much_more_before_its_engine() -> None:
    """What it has not read yet of first tokens must not count as prefill still to come."""
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    submit(worker, "floor", 0.0, ttft_s=0.02, relegate=True)
    effects = worker.first_token(0.0, "floor") + worker.step(0.0, CycleTicked())
    for name in ("a", "b", "c", "d"):
        effects += submit(worker, name, 0.0, ttft_s=0.06, relegate=True)
    assert dispatched(effects) == ["a", "b"]
    assert dispatched(worker.step(0.1, CycleTicked())) == []
    assert dispatched(worker.step(0.25, CycleTicked())) == ["c"]
    assert dispatched(worker.step(0.35, CycleTicked())) == []


def test_an_engine_faster_than_predicted_gets_a_wider_window() -> None:
    """Most prompts are 90 ms by prediction, 10 in fact, side by side: more and more of them are let before it."""
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    worker.step(0.0, EngineWentUp(engine("e1", max_num_seqs=100)))
    submit(worker, "floor", 0.0, ttft_s=0.01, relegate=True)
    worker.finish(0.0, "floor", 1)
    effects: list[WorkerEffect] = []
    for number in range(1500):
        effects += submit(worker, f"r{number}", 0.0, ttft_s=0.1 if number % 10 else 0.01, relegate=True)
    widths: list[int] = []
    while running := dispatched(effects):
        widths.append(len(running))
        now_s = 0.01 * len(widths)
        effects = [effect for name in running for effect in worker.first_token(now_s, name)]
        effects += [effect for name in running for effect in worker.finish(now_s, name, 1)]
    assert sum(widths) == 1500
    assert widths[0] <= 4
    assert max(widths) >= 50


def test_an_answer_that_is_not_streamed_holds_the_window_only_as_long_as_its_prefill_may_take() -> None:
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    submit(worker, "floor", 0.0, ttft_s=0.02, relegate=True)
    worker.first_token(0.0, "floor")
    whole = replace(request("whole", slo=SLO, prompt_tokens=4000), stream=False)
    effects = worker.submit(0.0, whole)
    effects += worker.annotate(0.0, "whole", annotation(10.0, ttft_s=0.5, tpot_s=0.01, slo=SLO))
    effects += submit(worker, "next", 0.0, ttft_s=0.5, relegate=True)
    for tick in range(1, 40):
        effects += worker.step(tick * 0.1, CycleTicked())
    assert dispatched(effects) == ["whole", "next"]


@pytest.mark.parametrize("promised", [False, True])
def test_who_comes_back_when_told_to_is_served_before_the_cheaper(promised: bool) -> None:
    worker = agent(TopologyName.MAX_ON_TIME, static_n_run=1)
    effects = submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    dear = replace(request("dear", slo=SLO, prompt_tokens=8000), relegate=False)
    effects += worker.submit(0.0, dear, promised=promised)
    tags = annotation(10.0, ttft_s=1.0, tpot_s=0.01, slo=SLO)
    effects += worker.annotate(0.0, "dear", tags)
    for number in range(8):
        effects += submit(worker, f"cheap{number}", 0.0, ttft_s=0.4, relegate=True)
    effects += worker.finish(0.1, "first", 10)
    effects += worker.step(0.15, CycleTicked())
    assert [r.request_id for r in refused(effects)] == ([] if promised else ["dear"])
    assert ("dear" in dispatched(effects)) is promised


def test_a_refusal_tells_when_the_first_token_would_have_come_and_when_it_was_due() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 10.0, ttft_s=0.2, relegate=True)
    submit(worker, "rather not", 11.0, ttft_s=0.25, relegate=False)
    effects: list[WorkerEffect] = []
    for tick in range(1, 8):
        effects += worker.step(11.0 + 0.25 * tick, CycleTicked())
    assert refused(effects) == [], "it may still start in time"
    (refusal,) = refused(worker.step(12.8, CycleTicked()))
    assert refusal.retry_after_s is not None
    assert refusal.message == (
        "the answer would be late: its first token would come 2.05 s after the request's arrival at the earliest, and "
        "is due after 2 s. Ask for a longer TTFT."
    )


def test_one_without_tags_is_spared_from_its_coming_here_on_not_from_its_arrival() -> None:
    """It was at another worker before."""
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 9.0, ttft_s=0.2, relegate=True)
    worker.submit(10.0, replace(request("moved", arrival_s=5.0, slo=SLO, prompt_tokens=100), relegate=False))
    assert refused(worker.step(10.25, CycleTicked())) == []
    assert [each.request_id for each in refused(worker.step(10.5, CycleTicked()))] == ["moved"]


def test_a_late_one_is_refused_however_many_wait_before_it_that_are_in_no_hurry() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    for number in range(worker.state.config.refusal.most_per_cycle):
        lax = replace(request(f"lax{number}", slo=Slo(1000.0, 0.1), prompt_tokens=100), relegate=False)
        worker.submit(0.0, lax)
    submit(worker, "late", 0.0, ttft_s=0.2, relegate=False)
    effects = worker.step(2.5, CycleTicked()) + worker.step(2.6, CycleTicked())
    assert [each.request_id for each in refused(effects)] == ["late"]


# --- a stated TTLT that cannot be kept ---


def asks(
    worker: Scripted, name: str, now_s: float, ttlt_s: float, *, tagged: bool = True, slo: Slo | None = None,
    relegate: bool = False, max_tokens: int | None = None, costs: tuple[KindCost, ...] = (),
) -> list[WorkerEffect]:  # fmt: skip
    """A request that states a TTLT: 0.5 s to its first token, 0.1 s for each, 100 tokens or, at the least, 25."""
    wanted = slo or Slo(6.0, 0.1, ttlt_s, whole=True)
    made = request(name, arrival_s=now_s, slo=wanted, prompt_tokens=1000, max_tokens=max_tokens)
    effects = worker.submit(now_s, replace(made, relegate=relegate))
    if tagged:
        tags = annotation(100.0, p90=400.0, ttft_s=0.5, tpot_s=0.1, slo=wanted, costs=costs)
        effects += worker.annotate(now_s, name, tags)
    return effects


LEAST_S = 0.5 + 0.1 * 24  # of such a request


@pytest.mark.parametrize("whole", [True, False])
def test_a_ttlt_that_not_even_an_idle_engine_keeps_is_refused_with_the_least_time_it_takes(whole: bool) -> None:
    worker = agent(TopologyName.FCFS)
    effects = asks(worker, "r", 1.0, 0.0, slo=Slo(6.0, 0.1, LEAST_S - 0.01, whole=whole))
    (refusal,) = refused(effects)
    assert (refusal.request_id, refusal.outcome, dispatched(effects)) == ("r", Outcome.SLO_UNREACHABLE, [])
    assert refusal.retry_after_s is None, "trying again does not help"
    assert refusal.message == (
        "the answer would be late: its last token would come 2.90 s after the request's arrival at the earliest, and "
        "is due after 2.89 s. Ask for a TTLT of at least 2.90 s, or for a shorter answer."
    )


def test_a_ttlt_that_a_short_answer_keeps_is_served() -> None:
    worker = agent(TopologyName.FCFS)
    effects = asks(worker, "r", 1.0, LEAST_S + 0.01) + worker.step(1.01, CycleTicked())
    assert (dispatched(effects), refused(effects)) == (["r"], [])


def test_whoever_takes_a_late_answer_gets_it_at_once_whatever_its_ttlt() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    assert dispatched(asks(worker, "r", 0.0, 0.1, relegate=True, tagged=False)) == ["r"]
    asks(worker, "next", 0.0, 0.1, relegate=True)
    assert dispatched(worker.finish(0.1, "r", 10)) == ["next"]


def test_a_bound_on_the_answer_counts_and_does_not_raise_the_least_length() -> None:
    """10 tokens take 1.4 s. A bound of 100 tokens does not turn the 90 % quantile into one of 100, and so the least
    length into the median."""
    assert dispatched(asks(agent(TopologyName.FCFS), "r", 0.0, 1.5, max_tokens=10)) == ["r"]
    assert dispatched(asks(agent(TopologyName.FCFS), "r", 0.0, LEAST_S + 0.01, max_tokens=100)) == ["r"]


def test_its_tags_are_waited_for_and_it_is_served_if_none_come() -> None:
    worker = agent(TopologyName.FCFS)
    assert dispatched(asks(worker, "r", 0.0, 0.001, tagged=False)) == []
    within_s = worker.state.config.tags_within_s
    assert dispatched(worker.step(within_s - 0.01, CycleTicked())) == []
    assert dispatched(worker.step(within_s, CycleTicked())) == ["r"]


def test_whoever_takes_a_late_answer_waits_for_no_tags() -> None:
    worker = agent(TopologyName.FCFS)
    assert dispatched(worker.submit(0.0, replace(request("r", slo=SLO), relegate=False))) == []
    assert dispatched(worker.submit(0.0, request("lax", slo=SLO))) == ["lax"]


# --- a first token, and a whole answer without a TTLT, that cannot be in time ---


def begins(worker: Scripted, name: str, *, ttft_s: float, relegate: bool = False) -> list[WorkerEffect]:
    """A request that comes at 1 s, whose prompt is computed in so many seconds; its first token is due after 2 s."""
    made = replace(request(name, arrival_s=1.0, slo=SLO, prompt_tokens=1000), relegate=relegate)
    tags = annotation(10.0, ttft_s=ttft_s, tpot_s=0.01, slo=SLO)
    return worker.submit(1.0, made) + worker.annotate(1.0, name, tags)


def test_a_first_token_that_not_even_an_idle_engine_has_in_time_is_refused_before_the_grant() -> None:
    worker = agent(TopologyName.FCFS)
    effects = begins(worker, "r", ttft_s=2.01)
    (refusal,) = refused(effects)
    assert (refusal.outcome, refusal.retry_after_s, dispatched(effects)) == (Outcome.SLO_UNREACHABLE, None, [])
    assert refusal.message == (
        "the answer would be late: its first token would come 2.01 s after the request's arrival at the earliest, and "
        "is due after 2 s. Ask for a TTFT of at least 2.01 s, or send a shorter prompt."
    )
    assert dispatched(begins(worker, "just", ttft_s=1.99)) == ["just"]
    assert dispatched(begins(worker, "lax", ttft_s=2.01, relegate=True)) == ["lax"]


def test_prompts_count_as_quick_as_they_were_measured_to_be() -> None:
    worker = agent(TopologyName.FCFS)
    worker.state.fleet["e1"].prefill.pace = 5.0
    assert dispatched(begins(worker, "r", ttft_s=9.9)) == ["r"]
    assert len(refused(begins(worker, "longer", ttft_s=10.1))) == 1
    worker.state.fleet["e1"].prefill.pace = 0.5  # beside others, which end
    assert dispatched(begins(worker, "alone", ttft_s=1.9)) == ["alone"]


@pytest.mark.parametrize(
    ("ttft_s", "tpot_s", "served"), [(0.52, 0.05, False), (0.52, 0.0956, True), (0.1, 0.11, True), (0.1, 0.1, False)]
)
def test_a_whole_answer_without_a_ttlt_is_refused_if_it_is_late_at_all_lengths(
    ttft_s: float, tpot_s: float, served: bool
) -> None:
    """Its prompt takes 0.5 s and a token 0.1 s. The second is in time if it is short, the third if it is long."""
    worker = agent(TopologyName.FCFS)
    effects = asks(worker, "r", 1.0, 0.0, slo=Slo(ttft_s, tpot_s, None, whole=True))
    assert bool(dispatched(effects)) is served
    if not served:
        (refusal,) = refused(effects)
        assert "its last token would come 2.90 s after" in refusal.message
        assert f"is due after {ttft_s + 25 * tpot_s:.3g} s" in refusal.message


def test_what_waits_is_refused_once_the_least_time_is_not_left_and_told_to_retry() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    effects = asks(worker, "r", 0.0, 4.0)
    for tick in range(1, 11):  # by the median, 10.5 s, it is late from the first
        effects += worker.step(tick * 0.1, CycleTicked())
    assert refused(effects) == []
    (refusal,) = refused(worker.step(1.125, CycleTicked()))
    assert refusal.retry_after_s is not None
    assert "would come 4.03 s after the request's arrival at the earliest, and is due after 4 s" in refusal.message
    assert refusal.message.endswith("Ask for a longer TTLT.")


def test_the_head_is_not_granted_too_late_between_two_cycles() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    asks(worker, "r", 0.0, 4.0)
    asks(worker, "next", 0.0, 40.0)
    effects = worker.finish(1.2, "first", 10)
    assert ([each.request_id for each in refused(effects)], dispatched(effects)) == (["r"], ["next"])


def test_the_quickest_engine_that_can_take_it_counts() -> None:
    slow, quick = (engine(hardware=name).engine_kind for name in ("slow", "quick"))
    costs = KindCost(slow, Cost(0.5, 0.1)), KindCost(quick, Cost(0.1, 0.01))
    worker = agent(TopologyName.FCFS)
    worker.up(0.0, engine("e1", hardware="slow"))
    assert [each.request_id for each in refused(asks(worker, "r1", 0.0, 1.0, costs=costs))] == ["r1"]
    worker.up(0.0, engine("e2", hardware="quick", max_model_len=500))  # it cannot take a prompt as long
    assert [each.request_id for each in refused(asks(worker, "r2", 0.0, 1.0, costs=costs))] == ["r2"]
    worker.up(0.0, engine("e3", hardware="quick"))
    assert refused(asks(worker, "r3", 0.0, 1.0, costs=costs)) == []


def test_steps_count_as_short_as_they_were_measured_without_other_requests() -> None:
    """The predicted time per token is that beside what runs now; what runs now ends."""
    worker = agent(TopologyName.FCFS)
    for now_s in (0.1, 0.2):
        worker.step(now_s, sampled("e1", 1, step_s=0.02))
    assert dispatched(asks(worker, "r", 1.0, 1.1)) == ["r"]
    assert dispatched(asks(worker, "too long", 1.0, 0.5 + 0.02 * 24 - 0.01)) == []


def test_a_step_that_statera_has_told_counts_with_the_prompt_that_it_reads() -> None:
    worker = agent(TopologyName.FCFS)
    worker.state.fleet["e1"].step_room.step = StepTime(base_s=0.01, sequence_s=9.0, context_s=1e-5)
    assert dispatched(asks(worker, "r", 1.0, 0.5 + 0.02 * 24 - 0.01)) == []
    assert dispatched(asks(worker, "longer", 1.0, 0.5 + 0.02 * 24 + 0.01)) == ["longer"]


def test_what_an_engine_holds_of_the_prompt_needs_no_time() -> None:
    worker = agent(TopologyName.FCFS)
    worker.up(0.0, engine("e1", kv_capacity_tokens=100_000))
    chain = PrefixChain((1, 2), (500, 1000))
    worker.submit(0.0, replace(request("before", prompt_tokens=1000), prefix=chain))
    worker.finish(0.1, "before", 1)
    wanted = Slo(6.0, 0.1, LEAST_S - 0.2, whole=True)
    made = replace(request("r", arrival_s=0.2, slo=wanted, prompt_tokens=1000), relegate=False, prefix=chain)
    effects = worker.submit(0.2, made)
    effects += worker.annotate(0.2, "r", annotation(100.0, p90=400.0, ttft_s=0.5, tpot_s=0.1, slo=wanted))
    assert dispatched(effects) == ["r"]


def test_a_refusal_for_good_promises_nothing() -> None:
    """A promise reserves a share of the engines."""
    worker = agent(TopologyName.MAX_ON_TIME, static_n_run=1)
    submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    for number in range(50):
        asks(worker, f"r{number}", 0.0, 1.0)
    submit(worker, "rather not", 0.0, ttft_s=0.2, relegate=False)
    (refusal,) = refused(worker.step(2.5, CycleTicked()))
    assert refusal.request_id == "rather not"
    assert refusal.retry_after_s is not None
    assert refusal.retry_after_s < 5.0


def test_a_relegated_answer_that_is_judged_whole_is_told_by_its_last_token() -> None:
    worker = agent(TopologyName.FCFS, static_n_run=1)
    submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    asks(worker, "r", 0.0, 40.0)
    worker.state.queue.unwilling["r"].relegated = True
    ahead_s = worker.state.queue_wait_s()
    (refusal,) = refused(worker.step(1.0, CycleTicked()))
    assert f"its last token would come about {1.0 + ahead_s + 0.5 + 10.0:.1f} s after" in refusal.message
    assert "is due after 40.0 s" in refusal.message
