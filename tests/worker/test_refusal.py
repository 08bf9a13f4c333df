"""`on_miss: refuse`, and how little prefill an engine gets before it."""

from dataclasses import replace
from random import Random

import pytest

from hmas.contracts.control import Hints, TopologyDecision, TopologyName, TopologyReceived
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.worker import (
    Annotated,
    CycleTicked,
    Dispatch,
    EngineFinished,
    EngineWentUp,
    FirstTokenReceived,
    Reject,
    Submitted,
    WorkerEffect,
)
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig
from tests.worker.builders import annotation, engine, request

SLO = Slo(2.0, 0.1)


def agent(topology: TopologyName, **config: object) -> WorkerAgent:
    made = WorkerAgent(replace(WorkerConfig(worker="w1", incarnation="i1", address="", pool="m"), **config), Random(1))  # type: ignore[arg-type]
    made.step(
        0.0,
        TopologyReceived(
            TopologyDecision(
                pool="m",
                topology=topology,
                hints=Hints(),
                bypass=False,
                epoch=1,
                seq=1,
                valid_for_s=1e6,
                reason="",
                selector="",
            ),
            0.0,
        ),
    )
    made.step(0.0, EngineWentUp(engine("e1", max_num_seqs=4)))
    return made


def submit(worker: WorkerAgent, name: str, now_s: float, *, ttft_s: float, relegate: bool) -> list[WorkerEffect]:
    prompt = int(ttft_s * 8000)  # as the prior has it, before cognition answers
    made = replace(request(name, arrival_s=now_s, slo=SLO, prompt_tokens=prompt), relegate=relegate)
    effects = worker.step(now_s, Submitted(made, 1, "g1"))
    tags = annotation(10.0, ttft_s=ttft_s, tpot_s=0.01, slo=SLO)
    return effects + worker.step(now_s, Annotated(name, 1, tags))


def dispatched(effects: list[WorkerEffect]) -> list[str]:
    return [e.request_id for e in effects if isinstance(e, Dispatch)]


def refused(effects: list[WorkerEffect]) -> list[Reject]:
    return [e for e in effects if isinstance(e, Reject)]


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
    assert "is due after 2.0 s" in refusal.message
    assert refusal.retry_after_s is not None
    assert dispatched(worker.step(4.0, EngineFinished("first", 10, None))) == ["waits"]


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
    effects += worker.step(0.0, FirstTokenReceived("floor"))
    for name, ttft_s in (("a", 0.5), ("b", 0.05), ("c", 0.05)):
        effects += submit(worker, name, 0.0, ttft_s=ttft_s, relegate=True)
    assert dispatched(effects) == ["floor", "a"]  # more than the window, but alone
    assert dispatched(worker.step(0.6, FirstTokenReceived("a"))) == ["b", "c"]


def test_a_worker_that_is_late_itself_lets_as_much_more_before_its_engine() -> None:
    """What it has not read yet of first tokens must not count as prefill still to come."""
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    submit(worker, "floor", 0.0, ttft_s=0.02, relegate=True)
    effects = worker.step(0.0, FirstTokenReceived("floor")) + worker.step(0.0, CycleTicked())
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
    worker.step(0.0, EngineFinished("floor", 1, None))
    effects: list[WorkerEffect] = []
    for number in range(1500):
        effects += submit(worker, f"r{number}", 0.0, ttft_s=0.1 if number % 10 else 0.01, relegate=True)
    widths: list[int] = []
    while running := dispatched(effects):
        widths.append(len(running))
        now_s = 0.01 * len(widths)
        effects = [effect for name in running for effect in worker.step(now_s, FirstTokenReceived(name))]
        effects += [effect for name in running for effect in worker.step(now_s, EngineFinished(name, 1, None))]
    assert sum(widths) == 1500
    assert widths[0] <= 4
    assert max(widths) >= 50


def test_an_answer_that_is_not_streamed_holds_the_window_only_as_long_as_its_prefill_may_take() -> None:
    worker = agent(TopologyName.FCFS, prefill_window_s=0.1)
    submit(worker, "floor", 0.0, ttft_s=0.02, relegate=True)
    worker.step(0.0, FirstTokenReceived("floor"))
    whole = replace(request("whole", slo=SLO, prompt_tokens=4000), stream=False)
    effects = worker.step(0.0, Submitted(whole, 1, "g1"))
    effects += worker.step(0.0, Annotated("whole", 1, annotation(10.0, ttft_s=0.5, tpot_s=0.01, slo=SLO)))
    effects += submit(worker, "next", 0.0, ttft_s=0.5, relegate=True)
    for tick in range(1, 40):
        effects += worker.step(tick * 0.1, CycleTicked())
    assert dispatched(effects) == ["whole", "next"]


@pytest.mark.parametrize("promised", [False, True])
def test_who_comes_back_when_told_to_is_served_before_the_cheaper(promised: bool) -> None:
    worker = agent(TopologyName.MAX_ON_TIME, static_n_run=1)
    effects = submit(worker, "first", 0.0, ttft_s=0.2, relegate=True)
    dear = replace(request("dear", slo=SLO, prompt_tokens=8000), relegate=False)
    effects += worker.step(0.0, Submitted(dear, 1, "g1", promised))
    tags = annotation(10.0, ttft_s=1.0, tpot_s=0.01, slo=SLO)
    effects += worker.step(0.0, Annotated("dear", 1, tags))
    for number in range(8):
        effects += submit(worker, f"cheap{number}", 0.0, ttft_s=0.4, relegate=True)
    effects += worker.step(0.1, EngineFinished("first", 10, None))
    effects += worker.step(0.15, CycleTicked())
    assert [r.request_id for r in refused(effects)] == ([] if promised else ["dear"])
    assert ("dear" in dispatched(effects)) is promised
