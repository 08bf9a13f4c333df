"""The tags and costs that cognition gives a simulated request: from stand-ins for a trained model of known quality, or
from the real backends.

Nothing else before the engine reads a request's true output length and task type, and this module reads them only to
imitate a model: `perfect` returns them as they are; `noisy` multiplies the true length by a log-normal error and tags
the task type correctly in 94.2 % of the cases, the accuracy of H-MAS Table 5.
"""

from collections.abc import Callable, Mapping
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
    """Gives requests their tags, in the place of perception."""

    def tags(self, offered: OfferedRequest) -> Tags | None:
        """Returns the tags of a request, or None if nothing is known of it; the worker then uses its prior."""


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
    """Knows nothing of any request, as if cognition were off."""

    def tags(self, offered: OfferedRequest) -> Tags | None:
        return None


@dataclass(frozen=True, slots=True)
class NoisyOracle:
    """Tags from the truth with random errors: `sigma` is the standard deviation of the logarithm of the length's error,
    `accuracy` the probability that the task type is the true one. A request's error depends only on the seed
    and on its content (or its id), so that it is the same in every run and when the request is sent again."""

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
    """Estimates like `honest`, but one `tenant` writes prompts that make its answers look only `CLAIMED` times as long
    as they are."""

    honest: NoisyOracle
    tenant: str

    def tags(self, offered: OfferedRequest) -> Tags | None:
        tags = self.honest.tags(offered)
        if tags is None or offered.request.tenant != self.tenant:
            return tags
        claimed = max(1.0, CLAIMED * tags.output_tokens)
        return replace(tags, output_tokens=claimed, output_tokens_p90=CLAIMED * tags.output_tokens_p90)


class Recorded:
    """Gives the tags that a trained model gave, read from a file that was recorded for the workload."""

    def tags(self, offered: OfferedRequest) -> Tags | None:
        if offered.recorded is None:
            return None
        task, median, p90 = offered.recorded
        return _tags(offered, Estimate(task, 1.0, median, p90), TagSource.MODEL, "recorded")


class BackendEstimator:
    """Asks one of perception's real backends, one prompt at a time."""

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
    """Stands in for the prediction service in the simulator: gives each request a predicted prefill time and time per
    output token."""

    def cost(self, offered: OfferedRequest, tags: Tags) -> Cost:
        """Returns the predicted prefill time and time per output token, both in s."""


class ProfileCosts:
    """Costs from the emulated engine's own cost model, as a model fitted to this engine would predict them: the request
    runs beside `batch` others whose contexts are as long as its prompt. `error` is the standard deviation of the
    logarithm of a random error per request; 0 means none."""

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
    """Costs from the linear profiles that prediction falls back to without a trained model: statistics of other models
    and hardware. `running` is the number of sequences assumed to run beside the request."""

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


class PoolCosts:
    """The costs of each pool, by its model."""

    def __init__(self, pools: Mapping[str, Costs]) -> None:
        self._pools = pools

    def cost(self, offered: OfferedRequest, tags: Tags) -> Cost:
        return self._pools[offered.request.model].cost(offered, tags)


def estimator(kind: str, sigma: float, accuracy: float, seed: int) -> Estimator:
    """Returns the estimator of that name: perfect, noisy, short-claims, rules, recorded or prior. `sigma` and
    `accuracy` are those of `NoisyOracle`. Raises ValueError for another name."""
    kinds: dict[str, Callable[[], Estimator]] = {
        "perfect": lambda: NoisyOracle(0.0, 1.0, seed),
        "noisy": lambda: NoisyOracle(sigma, accuracy, seed),
        "short-claims": lambda: ShortClaims(NoisyOracle(sigma, accuracy, seed), CLAIMANT),
        "rules": lambda: BackendEstimator(RulesBackend()),
        "recorded": Recorded,
        "prior": NoEstimator,
    }
    if kind not in kinds:
        raise ValueError(f"unknown estimator {kind!r}: choose one of {', '.join(kinds)}")
    return kinds[kind]()
