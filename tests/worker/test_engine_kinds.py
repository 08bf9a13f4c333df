"""Engines of two kinds behind one worker: each is judged by the costs of its own."""

from dataclasses import replace

import pytest

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Cost, KindCost
from hmas.contracts.worker import CycleTicked, EngineWentDown, PublishTelemetry
from hmas.laws.kind_costs import cost_among
from hmas.worker.agent.agent import WorkerConfig
from tests.worker.builders import Scripted, annotation, dispatched, engine, request, sampled

CONFIG = WorkerConfig(worker="w1", incarnation="i1", address="host:1", pool="m")
SLOW, FAST = EngineKind("", "A100"), EngineKind("", "H100")
COSTS = (KindCost(SLOW, Cost(0.9, 0.06)), KindCost(FAST, Cost(0.3, 0.02)))
SLOW_ENGINE, FAST_ENGINE = engine("slow", hardware="A100"), engine("fast", hardware="H100")
TAGS = annotation(100.0, costs=COSTS)


def worker(**changes: object) -> Scripted:
    return Scripted(replace(CONFIG, **changes), SLOW_ENGINE, FAST_ENGINE)  # type: ignore[arg-type]


def queued(made: Scripted, name: str = "a", engines: tuple[str, ...] = ("slow", "fast")) -> None:
    """Submits a request with tags while no engine has room."""
    for each in engines:
        made.state.fleet[each].life.held_until_s = 100.0
    made.submit(0.0, request(name))
    made.annotate(0.0, name, TAGS)
    assert name not in made.grants


def test_what_waits_is_predicted_for_all_engines_that_are_up_and_what_runs_for_its_own() -> None:
    made = worker()
    queued(made)
    entry = made.state.queue.get("a")
    assert entry is not None
    joint = cost_among(COSTS, (SLOW, FAST))
    assert (entry.prefill_s, entry.tpot_s) == (joint.ttft_s, joint.tpot_s)
    assert made.state.queue.queued_s == pytest.approx(joint.total_s(100.0))
    made.state.fleet["slow"].life.held_until_s = 0.0
    assert dispatched(made.step(1.0, sampled("slow"))) == [("a", "slow")]
    assert (entry.prefill_s, entry.tpot_s) == (0.9, 0.06)
    assert made.state.queue.queued_s == 0.0
    assert entry.remaining_s == pytest.approx(0.9 + 6.0)
    made.state.fleet["slow"].life.held_until_s = made.state.fleet["fast"].life.held_until_s = 100.0
    made.fail(2.0, "a", busy=True)  # it waits again
    assert (entry.prefill_s, entry.tpot_s) == (joint.ttft_s, joint.tpot_s)
    assert made.state.queue.queued_s == pytest.approx(joint.total_s(100.0))


def test_an_engine_that_goes_down_is_waited_for_no_more() -> None:
    made = worker()
    queued(made)
    entry = made.state.queue.get("a")
    assert entry is not None
    made.step(1.0, EngineWentDown("fast", "it crashed"))
    assert entry.prefill_s == 0.9
    assert made.state.queue.queued_s == pytest.approx(0.9 + 6.0)
    made.up(2.0, FAST_ENGINE)
    assert entry.prefill_s == cost_among(COSTS, (SLOW, FAST)).ttft_s


def test_tags_that_come_after_the_grant_are_those_of_its_engine() -> None:
    made = worker()
    made.state.fleet["slow"].life.held_until_s = 100.0
    made.submit(0.0, request("a"))
    made.step(0.5, sampled("fast"))
    assert made.grants["a"].engine == "fast"
    made.annotate(0.6, "a", TAGS)
    entry = made.state.queue.get("a")
    assert entry is not None
    assert (entry.prefill_s, entry.tpot_s) == (0.3, 0.02)


def test_pending_prefill_is_limited_by_the_seconds_that_the_engine_itself_takes() -> None:
    """Of a window of a second, one prompt takes three quarters on the slow engine, and a quarter on the fast one."""
    made = worker(prefill_window_s=1.0, static_n_run=8)
    costs = tuple(KindCost(kind, Cost(prefill_s, 0.02)) for kind, prefill_s in ((SLOW, 0.75), (FAST, 0.25)))
    tiny = annotation(100.0, costs=tuple(KindCost(kind, Cost(1e-9, 0.02)) for kind in (SLOW, FAST)))
    sent = [request(f"r{i}") for i in range(8)]
    for each in ("slow", "fast"):
        made.state.fleet[each].life.held_until_s = 5.0
    made.submit(0.0, request("floor"), *sent)
    made.annotate(0.0, "floor", tiny)  # a step costs nothing by itself
    for asked in sent:
        made.annotate(0.0, asked.id, annotation(100.0, costs=costs))
    made.step(6.0, sampled("slow"))
    made.step(6.0, sampled("fast"))
    on = [grant.engine for name, grant in made.grants.items() if name != "floor"]
    assert (on.count("slow"), on.count("fast")) == (1, 4)


def test_a_prompt_that_an_engine_holds_saves_the_seconds_of_that_engine() -> None:
    """A tenth of the prompt on the slow engine is worth less than that the other is fast; all of it is worth more."""
    for held, chosen in ((100, "fast"), (1000, "slow")):
        made = worker()
        chain = PrefixChain((1, 2), (held, 1001), True)
        made.state.fleet["slow"].prefix.hold(PrefixChain((1,), (held,), False), 100_000)
        costs = tuple(KindCost(kind, Cost(prefill_s, 0.001)) for kind, prefill_s in ((SLOW, 0.9), (FAST, 0.3)))
        for each in ("slow", "fast"):
            made.state.fleet[each].life.held_until_s = 5.0
        made.submit(0.0, replace(request("a", prompt_tokens=1001), prefix=chain))
        made.annotate(0.0, "a", annotation(1.0, costs=costs))
        for each in ("slow", "fast"):
            made.state.fleet[each].life.held_until_s = 0.0
        made.step(6.0, sampled("slow"))
        assert made.grants["a"].engine == chosen, held


def test_telemetry_tells_on_which_kind_a_request_ran() -> None:
    made = worker()
    made.submit(0.0, request("a"))
    made.annotate(0.0, "a", TAGS)
    made.step(0.5, sampled("slow"))
    made.first_token(1.0, "a")
    effects = made.finish(2.0, "a", 10) + made.step(3.0, CycleTicked())
    reports = [each.telemetry for each in effects if isinstance(each, PublishTelemetry)]
    finished = [each for report in reports for each in report.finished]
    kind = {"slow": SLOW, "fast": FAST}[made.grants["a"].engine]
    assert [(each.request_id, each.kind) for each in finished] == [("a", kind)]
