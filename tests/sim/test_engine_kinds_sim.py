"""A pool of two kinds of engine behind one worker, with the costs that ship: each kind is predicted for what it is."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import pytest

from hmas.contracts.agent import Agent
from hmas.contracts.cognition import AnswerCall, CallReceived
from hmas.contracts.control_agents import WorkerReported
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost
from hmas.engine.named import named_profile
from hmas.sim.processes.mesh import Handlers, MeshSim
from hmas.sim.setup import POOL, MeshSetup, PoolSetup
from hmas_lab.sim.sources import WorkloadSpec, build

SLOW, FAST = named_profile("llama2-70b-a100x4"), named_profile("llama2-70b-h100x4")
LEARNT = 50  # requests, of either engine, that have finished before what is judged is predicted
LEAST = 50  # requests that are judged of either engine


@dataclass(frozen=True, slots=True)
class Judged:
    """A request that finished: what was predicted for each kind of engine, on which it ran, and what it cost there."""

    predicted: Mapping[EngineKind, Cost]
    kind: EngineKind
    cost: Cost


class WatchedMesh(MeshSim):
    """Notes what prediction answers, and what the requests then cost that were predicted after `LEARNT` others."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.judged: list[Judged] = []
        self._asked: dict[int, tuple[Any, ...]] = {}
        self._predicted: dict[str, dict[EngineKind, Cost]] = {}
        self._settled = 0

    def step(self, label: str, agent: Agent[Any, Any], event: object, handlers: Handlers) -> None:
        if label == "prediction":
            if isinstance(event, CallReceived):
                self._asked[event.call] = event.items
            elif isinstance(event, WorkerReported):
                self._see(event)
            handlers = {**handlers, AnswerCall: partial(self._note, handlers[AnswerCall])}
        super().step(label, agent, event, handlers)

    def _note(self, answer: Callable[[Any], None], effect: AnswerCall[Cost]) -> None:
        answer(effect)
        for item, cost in zip(self._asked.pop(effect.call), effect.answers, strict=True):
            if self._settled >= LEARNT:
                self._predicted.setdefault(item.request_id, {})[item.query.kind] = cost

    def _see(self, event: WorkerReported) -> None:
        for ended in event.telemetry.finished:
            if ended.outcome is Outcome.FINISHED and ended.output_tokens > 1:
                self._settled += 1
                predicted = self._predicted.pop(ended.request_id, None)
                if predicted is not None:
                    self.judged.append(Judged(predicted, ended.kind, Cost(ended.own_prefill_s, ended.tpot_s)))


def ratios(judged: list[Judged], ran_on: EngineKind, by: EngineKind) -> tuple[float, float]:
    """Returns predicted over observed prefill and TPOT, in the median, of the requests that ran on one kind of engine,
    as predicted for another or for the same."""
    of_kind = [each for each in judged if each.kind == ran_on]
    assert len(of_kind) >= LEAST
    return (
        median(each.predicted[by].ttft_s / each.cost.ttft_s for each in of_kind),
        median(each.predicted[by].tpot_s / each.cost.tpot_s for each in of_kind),
    )


@pytest.mark.parametrize("profiles", [(SLOW, FAST), (FAST, SLOW)], ids=["slow first", "fast first"])
@pytest.mark.long
def test_both_kinds_behind_one_worker_are_predicted_within_ten_per_cent(profiles: tuple[Any, Any]) -> None:
    first, second = profiles
    setup = MeshSetup(estimator="noisy", pools=(PoolSetup(POOL, first, 1, 1, ((second, 1),)),))
    mesh = WatchedMesh(setup, first, 2, build(WorkloadSpec(kind="mix", duration_s=240.0), 2.0, 1), 1)
    mesh.run()
    kinds = [EngineKind(profile.model, profile.hardware) for profile in profiles]
    for kind, other in (kinds, kinds[::-1]):
        assert ratios(mesh.judged, kind, kind) == pytest.approx((1.0, 1.0), abs=0.1)
        # The other card's costs are off by more than this on either, so that a pool's first card cannot be meant.
        assert min(abs(ratio - 1.0) for ratio in ratios(mesh.judged, kind, other)) > 0.15
