"""`python -m hmas_lab.placement.alpaserve_check CHECKOUT` compares our placements in AlpaServe's space with its public
code's, on its own problem.

CHECKOUT is a checkout of alpa-projects/mms, which has no licence: nothing of it is in this repository. Its problem: a
group of cards serves one request of its model at a time, in a fixed time, and the requests of a model go to the group
that is free first. Ours is the same with instances of one slot, and is searched exactly where its search is greedy. Two
models, eight cards: in the first settings all groups have one size, in the others each model has its own.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.request import Request, Slo, TaskType
from hmas.contracts.step_cost import StepCostModel
from hmas.sim.workload import OfferedRequest
from hmas_lab.placement.one_type import Judge, one_size_for_all, one_type_each
from hmas_lab.placement.slots import slot_run, total

CARDS = 8
SPEEDUPS = {1: 1.0, 2: 1.8, 4: 3.1, 8: 4.6}  # of a model on so many cards
STAGE_PENALTY, OVERHEAD_S = 0.009, 0.011  # what its simulator adds: to a stage's time as a share, to each answer in s
ONE_MODEL = 2.0  # its weights and a group's memory in GB are such that no group holds two models
TRAINING, JUDGED = 0, 1000  # seeds
Arrivals = Mapping[str, Sequence[float]]  # of each model, in s
Placed = dict[str, tuple[int, int]]  # of each model, the cards of a group and how many groups


@dataclass(frozen=True, slots=True, kw_only=True)
class OneSlotSetting:
    """Two models: the time in s of a request on one card, the SLO in s, and the rate; arrivals vary by `cv`."""

    name: str
    seconds: tuple[float, float]
    slos_s: tuple[float, float]
    rates_rps: tuple[float, float]
    cv: float = 1.0

    @property
    def apart(self) -> bool:
        """Whether the two models are unlike, so that each has groups of its own size."""
        return self.seconds[0] != self.seconds[1]


SETTINGS = (
    OneSlotSetting(name="lax", seconds=(0.4, 0.4), slos_s=(2.0, 2.0), rates_rps=(9.0, 5.0)),
    OneSlotSetting(name="tight", seconds=(0.4, 0.4), slos_s=(0.3, 0.3), rates_rps=(5.0, 4.0)),
    OneSlotSetting(name="heavy", seconds=(0.4, 0.4), slos_s=(0.6, 0.6), rates_rps=(15.0, 6.0)),
    OneSlotSetting(name="bursty", seconds=(0.4, 0.4), slos_s=(1.0, 1.0), rates_rps=(5.0, 3.0), cv=4.0),
    OneSlotSetting(name="unlike", seconds=(0.2, 0.8), slos_s=(0.4, 2.4), rates_rps=(12.0, 5.0)),
    OneSlotSetting(name="unlike, bursty", seconds=(0.2, 0.8), slos_s=(0.8, 1.2), rates_rps=(6.0, 1.5), cv=3.0),
)


class Theirs:
    """AlpaServe's code, from a checkout. Raises ModuleNotFoundError where that is none, or where numpy, scipy, fastapi
    or uvicorn are missing."""

    def __init__(self, checkout: Path) -> None:
        sys.path.insert(0, str(checkout))
        _stub()
        self._profiling = import_module("alpa_serve.profiling")
        self._policies = import_module("alpa_serve.placement_policy")
        self._base = import_module("alpa_serve.placement_policy.base_policy")

    def placed(self, setting: OneSlotSetting) -> tuple[Any, Placed]:
        """Returns its placement, as it is and in our terms."""
        policy = self._policies.ModelParallelismSearch(max_pp=1, max_op=CARDS, use_separation=setting.apart)
        models, cluster = self._models(setting), self._policies.ClusterEnv(CARDS, ONE_MODEL)
        workload = self._base.gen_train_workload(models, seed=TRAINING)
        placement = policy.solve_placement(models, cluster, workload)[0]
        sizes: dict[str, list[int]] = {}
        for config, of in zip(placement.group_configs, placement.group_models, strict=True):
            for number in of:
                sizes.setdefault(models[number].name, []).append(config.op)
        if uneven := [name for name, own in sizes.items() if len(set(own)) > 1]:
            print(f"{setting.name}: its groups of {', '.join(uneven)} have several sizes: {sizes}")
        return placement, {name: (max(own), len(own)) for name, own in sizes.items()}

    def attainment(self, setting: OneSlotSetting, placement: Any) -> float:
        """Returns the share of requests on time by its simulator."""
        models, cluster = self._models(setting), self._policies.ClusterEnv(CARDS, ONE_MODEL)
        workload = self._base.gen_train_workload(models, seed=JUDGED)
        evaluator = self._base.PlacementEvaluator(models, cluster, workload, "fast_simulator", False)
        return float(evaluator.get_stats([placement])[0][0])

    def arrivals(self, setting: OneSlotSetting, seed: int) -> Arrivals:
        workload = self._base.gen_train_workload(self._models(setting), seed=seed)
        found: dict[str, list[float]] = {"a": [], "b": []}
        for request, arrival_s in zip(workload.requests, workload.arrivals, strict=True):
            found[request.model_name].append(float(arrival_s))
        return found

    def _models(self, setting: OneSlotSetting) -> list[Any]:
        found = []
        for name, alone_s, slo_s, rate in zip("ab", setting.seconds, setting.slos_s, setting.rates_rps, strict=True):
            costs = {
                self._profiling.ParallelConfig(1, cards, 1): self._profiling.LatencyMemData(
                    latency={1: [alone_s / speedup]}, act_mem={1: [0.0]}, weight_mem=[0.9 * ONE_MODEL]
                )
                for cards, speedup in SPEEDUPS.items()
            }
            result = self._profiling.ProfilingResult(name, costs, [1], [1])
            found.append(self._policies.ModelData(name, slo_s, rate, setting.cv, result))
        return found


class Ours:
    """The same problem with instances of one slot."""

    def __init__(self, setting: OneSlotSetting) -> None:
        self._setting = setting
        self._kinds = {
            name: tuple(_kind(name, cards, alone_s) for cards in SPEEDUPS)
            for name, alone_s in zip("ab", setting.seconds, strict=True)
        }

    def placed(self, arrivals: Arrivals) -> Placed:
        solve = one_type_each if self._setting.apart else one_size_for_all
        sizes = {kind.name: kind.gpus for own in self._kinds.values() for kind in own}
        plans = solve(self._kinds, CARDS, self._judge(arrivals))
        return {plan.pool: (sizes[group.type], group.count) for plan in plans for group in plan.groups}

    def attainment(self, arrivals: Arrivals, placed: Placed) -> float:
        judge = self._judge(arrivals)
        return sum(judge(name, self._sized(name, cards), count) for name, (cards, count) in placed.items())

    def _sized(self, name: str, cards: int) -> InstanceType:
        return next(kind for kind in self._kinds[name] if kind.gpus == cards)

    def _judge(self, arrivals: Arrivals) -> Judge:
        slos_s = dict(zip("ab", self._setting.slos_s, strict=True))
        requests = {name: [_offered(at_s, slos_s[name]) for at_s in own] for name, own in arrivals.items()}
        number = sum(map(len, requests.values()))

        def judge(pool: str, kind: InstanceType, count: int) -> float:
            return total(slot_run(requests[pool], ((kind, count),), 1.0)).met / number

        return judge


def _kind(name: str, cards: int, alone_s: float) -> InstanceType:
    step = StepCostModel(alone_s / SPEEDUPS[cards] * (1.0 + STAGE_PENALTY), 0.0, 0.0, 0.0)
    return InstanceType(
        name=f"{name}{cards}", model=name, hardware="card", gpus=cards, step=step, kv_tokens=1, max_num_seqs=1
    )  # fmt: skip


def _offered(arrival_s: float, slo_s: float) -> OfferedRequest:
    slo = Slo(0.0, 0.0, slo_s - OVERHEAD_S, whole=True)
    request = Request(
        id="", model="", tenant="", flow="", prompt_tokens=1, max_tokens=1, stream=False, slo=slo, slo_stated=True,
        priority=0, weight=1.0, importance=1.0, arrival_s=arrival_s,
    )  # fmt: skip
    return OfferedRequest(request=request, output_tokens=1, slo=slo, task=TaskType.UNKNOWN)


def _stub() -> None:
    """Puts in place what its code names of two packages that it does not use in one process, or does not need."""
    names = ("ray", "ray.actor", "ray.util", "ray.util.scheduling_strategies", "numba")
    made: dict[str, Any] = {name: ModuleType(name) for name in names}
    made["ray"].remote = lambda *of, **_: of[0] if of else lambda each: each
    made["ray"].is_initialized = lambda: True
    made["ray"].actor = made["ray.actor"]
    made["ray.actor"].ActorHandle = object
    made["ray.util.scheduling_strategies"].NodeAffinitySchedulingStrategy = object
    made["numba"].jit = lambda *_, **__: lambda function: function
    for name, stub in made.items():
        sys.modules.setdefault(name, stub)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a checkout of https://github.com/alpa-projects/mms")
    theirs = Theirs(parser.parse_args(words).checkout)
    alike, worst = 0, 0.0
    for setting in SETTINGS:
        ours, judged = Ours(setting), theirs.arrivals(setting, JUDGED)
        placement, its = theirs.placed(setting)
        own = ours.placed(theirs.arrivals(setting, TRAINING))
        share, mine = theirs.attainment(setting, placement), ours.attainment(judged, its)
        alike += own == its
        worst = max(worst, abs(share - mine))
        print(
            f"{setting.name}: its {its} {share:.4f}, by ours {mine:.4f}; our {own} {ours.attainment(judged, own):.4f}"
        )
    print(f"{alike} of {len(SETTINGS)} placements alike, attainment within {100 * worst:.2f} points")
    return 0 if alike >= 4 and worst <= 0.01 else 1


if __name__ == "__main__":
    sys.exit(main())
