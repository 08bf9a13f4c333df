"""The cells of the study of plans: which models share which cards, under which trace, and what is asked of each."""

from dataclasses import dataclass, replace
from functools import cache

from hmas.contracts.pool_plan import Budget, Catalogue, InstanceType
from hmas.runtime.catalogue_file import shipped_catalogue
from hmas_lab.placement.one_type import PoolKinds
from hmas_lab.placement.traces import PoolTraffic, alone_step_s

MODELS = {
    "qwen-fp8": "Qwen/Qwen3-32B-fp8",
    "qwen-bf16": "Qwen/Qwen3-32B-bf16",
    "llama": "meta-llama/Llama-3.1-70B-fp8",
}
HARDWARE = "h100"
LOAD, CARDS, BURSTS, TRACE = "load", "cards", "bursts", "trace"  # along which a series of cases runs


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCase:
    """Pools on `gpus` cards. `rates` are their requests per second, by the names of `MODELS`; trace, kappa and cv as in
    `PoolTraffic`. Runs last `seconds`, and requests that come after `judged_s` are judged. `series` is along what the
    cases of its series differ, empty where it stands by itself."""

    name: str
    rates: tuple[tuple[str, float], ...]
    trace: str
    kappa: float
    gpus: int
    cv: float = 1.0
    seconds: float = 100.0
    judged_s: float = 40.0
    series: str = ""

    @property
    def budget(self) -> Budget:
        return Budget(HARDWARE, self.gpus)

    @property
    def kinds(self) -> PoolKinds:
        """The types of the shipped catalogue that each pool may run, those with the fewest cards first."""
        return {pool: kinds_of(pool) for pool, _ in self.rates}

    @property
    def catalogue(self) -> Catalogue:
        return Catalogue(tuple(kind for own in self.kinds.values() for kind in own))

    def traffic(self, pool: str) -> PoolTraffic:
        return PoolTraffic(
            pool=pool, trace=self.trace, rate_rps=dict(self.rates)[pool], alone_s=self.alone_s[pool], cv=self.cv,
            kappa=self.kappa,
        )  # fmt: skip

    @property
    def alone_s(self) -> dict[str, float]:
        """Each pool's tau, in s."""
        return {pool: alone_step_s(own[0].step) for pool, own in self.kinds.items()}


@cache
def kinds_of(pool: str) -> tuple[InstanceType, ...]:
    types = shipped_catalogue().types
    own = [kind for kind in types if (kind.model, kind.hardware) == (MODELS[pool], HARDWARE)]
    return tuple(sorted(own, key=lambda kind: kind.gpus))


TWO = PlanCase(
    name="two models, 16 cards, t4", rates=(("qwen-fp8", 22.0), ("llama", 8.4)), trace="t4", kappa=1.0, gpus=16
)
WIDE = PlanCase(
    name="three models, 24 cards, t9",
    rates=(("qwen-fp8", 48.0), ("qwen-bf16", 26.0), ("llama", 21.0)),
    trace="t9", kappa=1.5, gpus=24, seconds=70.0, judged_s=30.0,
)  # fmt: skip
SMALL_WIDE = PlanCase(
    name="two models, 12 cards, t9", rates=(("qwen-fp8", 38.0), ("llama", 17.0)), trace="t9", kappa=1.5, gpus=12,
    seconds=80.0,
)  # fmt: skip
BURSTY = replace(WIDE, name="three models, 24 cards, t9, cv 4", cv=4.0)
ALONE = PlanCase(name="one model, 16 cards, t9", rates=(("llama", 46.0),), trace="t9", kappa=1.5, gpus=16)
LOOSE = PlanCase(name="one model, 16 cards, t4, kappa 2", rates=(("llama", 42.0),), trace="t4", kappa=2.0, gpus=16)
SMALL = PlanCase(name="one model, 8 cards, t4", rates=(("llama", 8.4),), trace="t4", kappa=1.0, gpus=8)
CASES = (TWO, WIDE, SMALL_WIDE, BURSTY, ALONE, LOOSE, SMALL)

# MaaSO's Figure 4 on two models: what is varied, and the rates of a trace, which offer about as much work each.
TRACE_LOADS = {"t1": 1.0, "t2": 1.25, "t3": 0.87, "t4": 1.0, "t5": 1.35, "t6": 1.13, "t9": 2.0, "t10": 1.8}


def loaded(case: PlanCase, load: float) -> PlanCase:
    """Returns the case with `load` times its rates."""
    return replace(case, rates=tuple((pool, round(load * rate, 3)) for pool, rate in case.rates))


def series() -> tuple[PlanCase, ...]:
    """Returns the cases along each axis of the figure, and the wide cell over its number of cards."""
    base = replace(TWO, seconds=80.0)
    found = [replace(loaded(base, load), name=trace, trace=trace, series=TRACE) for trace, load in TRACE_LOADS.items()]
    found += [replace(base, name=f"{gpus} cards", gpus=gpus, series=CARDS) for gpus in (8, 12, 16, 20, 24, 32)]
    found += [replace(base, name=f"cv {cv:g}", cv=cv, series=BURSTS) for cv in (1.0, 2.0, 4.0, 8.0)]
    found += [
        replace(loaded(base, load), name=f"{load:g} of the rate", series=LOAD) for load in (0.6, 0.8, 1.0, 1.2, 1.5)
    ]
    wide = replace(WIDE, seconds=60.0, judged_s=20.0)
    found += [replace(wide, name=f"t9, {gpus} cards", gpus=gpus, series=CARDS) for gpus in (16, 20, 24, 28, 32)]
    return tuple(found)


SERIES = series()
