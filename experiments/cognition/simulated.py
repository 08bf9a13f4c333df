"""Measures what the trained perception is worth to the scheduler: one simulated mesh serves the same requests with each
of four estimators.

The workload is the test part of the corpus: prompts that perception was not trained on, each with a recorded answer of
a language model. The simulated engine decodes that answer's length, so a wrong tag has real consequences. Pure.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from hmas.contracts.request import Request, TaskType
from hmas.engine.core.profile import builtin_profile
from hmas.laws.slo import default_slo
from hmas.perception.agent.backend import Estimate
from hmas.perception.backends.model import ModelBackend
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.setup import POOL, MeshSetup
from hmas.sim.times import ModelTimes
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.perception.evaluation import view
from hmas_lab.perception.training.corpus import Prompt
from hmas_lab.sim.capacity import find_capacity

PROFILE, ENGINES, DURATION_S = "qwen3-32b-h100x2", 1, 100.0
BURST_CV = 2.0  # CV of the gaps between arrivals
MAX_TOKENS = 16_384  # the same for every request, so that it says nothing about its length
GUESS_RPS = 10.0
SEEDS = (1, 2, 3, 4, 5)
COSTS = {"perfect": "engine", "rules": "linear"}  # of the others: what ships, as in `hmas_lab.sim.systems`
ESTIMATORS = {"perfect knowledge": "perfect", "trained": "shipped", "rules": "rules", "prior alone": "prior"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedWorth:
    """The result of one estimator at one load, averaged over seeds: `goodput_rate`, the share of offered requests that
    met both SLOs, which is `by_seed` for each; `goodput`, such requests per second; `esg`, ESG (H-MAS Eq. 6) per
    second. `requests` counts all seeds."""

    estimator: str
    load: float  # in λ*
    requests: int
    goodput_rate: float
    by_seed: tuple[float, ...]
    goodput: float
    esg: float


def lambda_star_rps(prompts: Sequence[Prompt]) -> float:
    """Returns λ*: the highest rate at which FCFS keeps 95 % of the requests inside their SLOs."""
    profile = builtin_profile(PROFILE)
    return find_capacity(lambda rate, s: workload(prompts, rate, s), profile, ENGINES, GUESS_RPS).rate_rps


def served(
    backend: ModelBackend,
    prompts: Sequence[Prompt],
    rates_rps: Mapping[float, float],
    estimators: Mapping[str, str] = ESTIMATORS,
    times: ModelTimes | None = None,
) -> list[SimulatedWorth]:
    """Runs the mesh with each estimator on the same arrivals, at each of the rates, which are named by their load in
    λ*. Perception takes the `times` of a batch, or those that were measured of the one that ships. Requests state
    their importance but no SLO: the mesh works for the SLO of the estimated task type, and is scored by that of the
    true one."""
    profile = builtin_profile(PROFILE)
    runs = []
    for load, rate_rps in rates_rps.items():
        asked = [with_tags(backend, workload(prompts, rate_rps, seed).fitting(profile)) for seed in SEEDS]
        for name, estimator in estimators.items():
            setup = MeshSetup(name=name, estimator=estimator, costs=COSTS.get(estimator, "shipped"))
            if times is not None:
                setup = replace(setup, perception=times)
            scores = [
                MeshSim(setup, profile, ENGINES, w, seed).run().score for w, seed in zip(asked, SEEDS, strict=True)
            ]
            runs.append(
                SimulatedWorth(
                    estimator=name,
                    load=load,
                    requests=sum(score.offered for score in scores),
                    goodput_rate=fmean(score.goodput_rate for score in scores),
                    by_seed=tuple(score.goodput_rate for score in scores),
                    goodput=fmean(score.goodput for score in scores),
                    esg=fmean(score.esg_rate for score in scores),
                )
            )
    return runs


def workload(prompts: Sequence[Prompt], rate_rps: float, seed: int) -> Workload:
    """Makes a workload of prompts that have a task type and an answer. All task types are equally likely, and arrivals
    come in bursts (Gamma gaps)."""
    rng = random.Random(seed)
    by_task: dict[TaskType, list[Prompt]] = {}
    for prompt in prompts:
        if prompt.task is not None and prompt.answers:
            by_task.setdefault(prompt.task, []).append(prompt)
    tasks, shape = sorted(by_task), BURST_CV**-2
    requests: list[OfferedRequest] = []
    arrival_s = 0.0
    while (arrival_s := arrival_s + rng.gammavariate(shape, 1 / (shape * rate_rps))) < DURATION_S:
        task = rng.choice(tasks)
        requests.append(_offered(len(requests), arrival_s, task, rng.choice(by_task[task]), rng))
    return Workload("corpus", tuple(requests), DURATION_S, "test part of the corpus, drawn alike by task type")


def _offered(index: int, arrival_s: float, task: TaskType, prompt: Prompt, rng: random.Random) -> OfferedRequest:
    importance = rng.uniform(0.5, 1.0)
    request = Request(
        id=f"r{index:06d}", model=POOL, tenant="default", flow="", prompt_tokens=prompt.tokens, max_tokens=MAX_TOKENS,
        stream=True, slo=default_slo(TaskType.UNKNOWN, importance), slo_stated=False, priority=0, weight=1.0,
        importance=importance, arrival_s=arrival_s,
    )  # fmt: skip
    answer = rng.choice(prompt.answers)
    return OfferedRequest(
        request=request, output_tokens=answer.tokens, slo=default_slo(task, importance), task=task, prompt=prompt.text
    )


def with_tags(backend: ModelBackend, asked: Workload) -> Workload:
    """Returns the workload with perception's tags for each prompt. Perception is not told which model answers."""
    texts = [
        Prompt(group="", text=r.prompt, tokens=r.request.prompt_tokens, task=None, source="", answers=())
        for r in asked.requests
    ]
    rows = zip(asked.requests, backend.estimate(list(map(view, texts))), strict=True)
    return replace(asked, requests=tuple(r if tag is None else replace(r, recorded=_fields(tag)) for r, tag in rows))


def _fields(tag: Estimate) -> tuple[TaskType, float, float, float]:
    return tag.task, tag.confidence, tag.output_tokens, tag.output_tokens_p90
