"""What cognition would say of a request: stand-ins for a trained model of known quality, and the real backends.

Only here does anything before the engine read the truth, and only to degrade it: `perfect` and `noisy` are oracles by
name. `noisy` multiplies the true length by a log-normal error and tags the task type rightly in 94.2 % of the cases,
the accuracy of H-MAS Table 5.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.resources import files
from math import exp
from random import Random
from typing import Protocol

import yaml

from hmas.contracts.request import Cost, Tags, TagSource, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Backend, Estimate, PromptView
from hmas.perception.agent.rules import RulesBackend
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.linear import LinearCostModel, profiles_from
from hmas.sim.workload import OfferedRequest

Z90 = 1.2816  # standard normal's 90 % quantile
CLAIMED, CLAIMANT = 0.1, "alpha"
TASKS = tuple(task for task in TaskType if task is not TaskType.UNKNOWN)


class Estimator(Protocol):
    """None: nothing is known, the worker's prior stands in."""

    def tags(self, offered: OfferedRequest) -> Tags | None: ...


def _tags(offered: OfferedRequest, estimate: Estimate, source: TagSource, version: str) -> Tags:
    request = offered.request
    slo = request.slo if request.slo_stated else default_slo(estimate.task, request.importance)
    return Tags(
        task=estimate.task,
        slo=slo,
        output_tokens=estimate.output_tokens,
        output_tokens_p90=estimate.output_tokens_p90,
        confidence=estimate.confidence,
        source=source,
        version=version,
    )


class NoEstimator:
    """Cognition is off."""

    def tags(self, offered: OfferedRequest) -> Tags | None:
        return None


@dataclass(frozen=True, slots=True)
class NoisyOracle:
    """`sigma` of the logarithm of the length's error; `accuracy` of the task type. A request's error is the same in
    every run of one seed, whatever the order of the questions, and when it is sent again."""

    sigma: float
    accuracy: float
    seed: int

    def tags(self, offered: OfferedRequest) -> Tags | None:
        draw = Random(f"{self.seed} {offered.content or offered.id}")
        median = max(1.0, offered.output_tokens * exp(draw.gauss(0.0, self.sigma)))
        task = offered.task if draw.random() < self.accuracy else draw.choice(TASKS)
        estimate = Estimate(task, self.accuracy, median, median * exp(Z90 * self.sigma))
        return _tags(offered, estimate, TagSource.MODEL, f"oracle-{self.sigma:g}")


@dataclass(frozen=True, slots=True)
class ShortClaims:
    """One tenant's prompts make its answers look `CLAIMED` times as long as they are."""

    honest: NoisyOracle
    tenant: str

    def tags(self, offered: OfferedRequest) -> Tags | None:
        tags = self.honest.tags(offered)
        if tags is None or offered.request.tenant != self.tenant:
            return tags
        claimed = max(1.0, CLAIMED * tags.output_tokens)
        return replace(tags, output_tokens=claimed, output_tokens_p90=CLAIMED * tags.output_tokens_p90)


class Recorded:
    """A trained model's answers, recorded beside the trace."""

    def tags(self, offered: OfferedRequest) -> Tags | None:
        if offered.recorded is None:
            return None
        task, median, p90 = offered.recorded
        return _tags(offered, Estimate(task, 1.0, median, p90), TagSource.MODEL, "recorded")


class BackendEstimator:
    """A perception backend, asked for one prompt at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def tags(self, offered: OfferedRequest) -> Tags | None:
        request = offered.request
        view = PromptView(
            text=offered.prompt,
            prompt_tokens=request.prompt_tokens,
            model=request.model,
            tenant=request.tenant,
            max_tokens=request.max_tokens,
        )
        estimate = self._backend.estimate([view])[0]
        return None if estimate is None else _tags(offered, estimate, TagSource.RULES, self._backend.version)


class Costs(Protocol):
    """The cost model as cognition would ask it."""

    def cost(self, offered: OfferedRequest, tags: Tags) -> Cost: ...


class ProfileCosts:
    """Service times from the engine's own cost model, unloaded but for a batch of `batch` neighbours of average
    context: what a cost model fitted to this engine predicts. `error` is the standard deviation of the logarithm of a
    per-request error, as in `NoisyOracle`."""

    def __init__(self, profile: EngineProfile, batch: int, error: float, seed: int) -> None:
        self._cost = profile.cost
        self._batch = batch
        self._error = error
        self._seed = seed

    def cost(self, offered: OfferedRequest, tags: Tags) -> Cost:
        prompt, cost = offered.request.prompt_tokens, self._cost
        factor = exp(Random(f"{self._seed} cost {offered.id}").gauss(0.0, self._error)) if self._error else 1.0
        step_s = cost.step_s(0, self._batch, self._batch * prompt, 0.0)
        prefill_s = cost.step_s(prompt, 0, 0, prompt * prompt / 2)
        return Cost(prefill_s * factor, step_s * factor)


class LinearCosts:
    """The linear cost profiles that serve where no model answers: statistics of other models and machines."""

    def __init__(self, model: str, hardware: str, running: int) -> None:
        text = (files("hmas.prediction") / "profiles.yaml").read_text(encoding="utf-8")
        self._costs = LinearCostModel(profiles_from(yaml.safe_load(text)))
        self._model = model
        self._hardware = hardware
        self._running = running

    def cost(self, offered: OfferedRequest, tags: Tags) -> Cost:
        query = CostQuery(
            prompt_tokens=offered.request.prompt_tokens,
            output_tokens=tags.output_tokens,
            model=self._model,
            hardware=self._hardware,
            running=self._running,
            waiting=0,
            kv_usage=0.5,
            task=tags.task,
        )
        return self._costs.predict([query])[0]


def estimator(kind: str, sigma: float, accuracy: float, seed: int) -> Estimator:
    """ValueError lists the kinds there are."""
    kinds: dict[str, Callable[[], Estimator]] = {
        "perfect": lambda: NoisyOracle(0.0, 1.0, seed),
        "noisy": lambda: NoisyOracle(sigma, accuracy, seed),
        "short-claims": lambda: ShortClaims(NoisyOracle(sigma, accuracy, seed), CLAIMANT),
        "rules": lambda: BackendEstimator(RulesBackend()),
        "recorded": Recorded,
        "prior": NoEstimator,
    }
    if kind not in kinds:
        raise ValueError(f"no estimator {kind!r}; there are: {', '.join(kinds)}")
    return kinds[kind]()
