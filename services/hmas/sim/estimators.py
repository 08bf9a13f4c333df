"""The estimates and costs that models give simulated requests: the real models, or stand-ins of known quality.

Nothing else before the engine reads a request's true output length and task type, and this module reads them only to
imitate a model: `perfect` returns them as they are; `noisy` multiplies the true length by a log-normal error and tags
the task type correctly in 94.2 % of the cases, the accuracy of H-MAS Table 5. Such runs are ablations.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from math import exp
from random import Random
from typing import Protocol

import yaml

from hmas.contracts.request import Cost, TagSource, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.perception.agent.backend import Backend, Estimate
from hmas.perception.agent.rules import RulesBackend
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.prediction.agent.linear import LinearCostModel, profiles_from
from hmas.prediction.models.by_catalogue import shipped
from hmas.sim.perceived import view
from hmas.sim.workload import OfferedRequest

Z90 = 1.2816  # standard normal's 90 % quantile
CLAIMED, CLAIMANT = 0.1, "alpha"
TASKS = tuple(task for task in TaskType if task is not TaskType.UNKNOWN)


class Estimator(Protocol):
    """Stands in for perception's backend. `source` and `version` are those of the tags."""

    @property
    def source(self) -> TagSource: ...

    @property
    def version(self) -> str: ...

    def estimate(self, offered: OfferedRequest) -> Estimate | None:
        """Returns the estimate for a request, or None if nothing is known of it; perception's prior then answers."""


class NoEstimator:
    """Knows nothing of any request, so that the prior answers."""

    source, version = TagSource.MODEL, "none"

    def estimate(self, offered: OfferedRequest) -> Estimate | None:
        return None


@dataclass(frozen=True, slots=True)
class NoisyOracle:
    """Estimates from the truth with random errors: `sigma` is the standard deviation of the logarithm of the length's
    error, `accuracy` the probability that the task type is the true one. A request's error depends only on the seed
    and on its content (or its id), so that it is the same in every run and when the request is sent again."""

    sigma: float
    accuracy: float
    seed: int

    @property
    def source(self) -> TagSource:
        return TagSource.MODEL

    @property
    def version(self) -> str:
        return f"oracle-{self.sigma:g}"

    def estimate(self, offered: OfferedRequest) -> Estimate:
        draw = Random(f"{self.seed} {offered.content or offered.id}")
        median = max(1.0, offered.output_tokens * exp(draw.gauss(0.0, self.sigma)))
        task = offered.task if draw.random() < self.accuracy else draw.choice(TASKS)
        return Estimate(task, self.accuracy, median, median * exp(Z90 * self.sigma))


@dataclass(frozen=True, slots=True)
class ShortClaims:
    """Estimates like `honest`, but one `tenant` writes prompts that make its answers look only `CLAIMED` times as long
    as they are."""

    honest: NoisyOracle
    tenant: str

    @property
    def source(self) -> TagSource:
        return self.honest.source

    @property
    def version(self) -> str:
        return self.honest.version

    def estimate(self, offered: OfferedRequest) -> Estimate:
        honest = self.honest.estimate(offered)
        if offered.request.tenant != self.tenant:
            return honest
        claimed = max(1.0, CLAIMED * honest.output_tokens)
        return replace(honest, output_tokens=claimed, output_tokens_p90=CLAIMED * honest.output_tokens_p90)


class Shipped:
    """Gives the estimates of the perception that ships for the text of each request (`hmas.sim.perceived`)."""

    source, version = TagSource.MODEL, "shipped"

    def estimate(self, offered: OfferedRequest) -> Estimate | None:
        if offered.recorded is None:
            return None
        return Estimate(*offered.recorded)


class BackendEstimator:
    """Asks one of perception's real backends, one prompt at a time."""

    source = TagSource.RULES

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def version(self) -> str:
        return self._backend.version

    def estimate(self, offered: OfferedRequest) -> Estimate | None:
        return self._backend.estimate([view(offered)])[0]


class ProfileCosts:
    """Costs from the emulated engines' own cost models, as a model without error would predict them: the request runs
    beside half as many others as an engine takes, whose contexts are as long as its prompt. `profiles` are those of
    each pool, by its name, the usual one first; a query names a kind of engine, or the pool where no model is told."""

    version = "engine"

    def __init__(self, profiles: Mapping[str, Sequence[EngineProfile]]) -> None:
        named = {(each.model or pool, each.hardware): each for pool, own in profiles.items() for each in own}
        self._profiles = {(pool, ""): own[0] for pool, own in profiles.items()} | named

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        return [self._cost(query) for query in queries]

    def _cost(self, query: CostQuery) -> Cost:
        profile, prompt = self._profiles[query.model, query.hardware], query.prompt_tokens
        batch = profile.limits.max_num_seqs // 2
        step_s = profile.cost.step_s(0, batch, batch * prompt, 0.0)
        return Cost(profile.cost.step_s(prompt, 0, 0, prompt * prompt / 2), step_s)


def linear_costs() -> LinearCostModel:
    """Returns the linear profiles that prediction falls back to: statistics of other models and hardware."""
    text = (files("hmas.prediction") / "profiles.yaml").read_text(encoding="utf-8")
    return LinearCostModel(profiles_from(yaml.safe_load(text)))


_shipped_costs = cache(shipped)


def cost_model(kind: str, profiles: Mapping[str, Sequence[EngineProfile]]) -> CostModel:
    """Returns the cost model of that name: shipped, linear or engine, which needs the `profiles` of the pools by name.
    Raises ValueError for another name."""
    if kind == "shipped":
        return _shipped_costs()
    if kind == "linear":
        return linear_costs()
    if kind == "engine":
        return ProfileCosts(profiles)
    raise ValueError(f"unknown cost model {kind!r}: choose shipped, linear or engine")


def estimator(kind: str, sigma: float, accuracy: float, seed: int) -> Estimator:
    """Returns the estimator of that name: shipped, rules, prior, none, perfect, noisy or short-claims.
    `sigma` and `accuracy` are those of `NoisyOracle`. Raises ValueError for another name."""
    kinds: dict[str, Callable[[], Estimator]] = {
        "shipped": Shipped,
        "rules": lambda: BackendEstimator(RulesBackend()),
        "prior": NoEstimator,
        "none": NoEstimator,  # the gateways ask nobody
        "perfect": lambda: NoisyOracle(0.0, 1.0, seed),
        "noisy": lambda: NoisyOracle(sigma, accuracy, seed),
        "short-claims": lambda: ShortClaims(NoisyOracle(sigma, accuracy, seed), CLAIMANT),
    }
    if kind not in kinds:
        raise ValueError(f"unknown estimator {kind!r}: choose one of {', '.join(kinds)}")
    return kinds[kind]()
