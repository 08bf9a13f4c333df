"""`on_miss: refuse`, and how little prefill an engine gets before it."""

from dataclasses import replace

import pytest

from hmas.contracts.control import Hints, TopologyDecision, TopologyName, TopologyReceived
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.contracts.worker import CycleTicked, EngineWentUp, WorkerEffect
from hmas.worker.agent.agent import WorkerConfig
from tests.worker.builders import Scripted, annotation, engine, granted, refused, request

SLO = Slo(2.0, 0.1)


def agent(topology: TopologyName, **config: object) -> Scripted:
    made = Scripted(replace(WorkerConfig(worker="w1", incarnation="i1", address="", pool="m"), **config))  # type: ignore[arg-type]
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
    assert "is due after 2.0 s" in refusal.message
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
