"""Measures how often answers outgrow the conformal fence of Statera over perception's predictions, on a stream of
settled requests whose distribution drifts. Pure."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.stats import binomtest

from hmas.contracts.control import Fence, FenceBucket
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestFinished
from hmas.perception.backends.model import ModelBackend
from hmas.statera.agent.config import FenceConfig
from hmas.statera.agent.fence import FenceCalibration
from hmas_lab.perception.evaluation import answers_of, view
from hmas_lab.perception.training.corpus import Prompt

REQUESTS = 12_000
WARM_UP = 500  # requests settled before outgrown bounds are counted
PHASES = 4  # parts of the stream; the mix of sources changes from one to the next
RATE = 10.0  # requests a second; at this rate the fence is refreshed every tenth request


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """The requests of one length bucket, prompts of at most `prompt_upto` tokens: the share `missed` whose answer
    outgrew the bound, and its 95 % Clopper-Pearson interval from `low` to `high`."""

    prompt_upto: int
    requests: int
    missed: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class FenceFigures:
    epsilon: float
    requests: int
    missed: float
    buckets: tuple[Bucket, ...]


def drifting(backend: ModelBackend, prompts: Sequence[Prompt], seed: int = 0) -> FenceFigures:
    """Returns how often answers outgrow the fence. Prompts with an answer are drawn with replacement; each phase of the
    stream favours other sources tenfold, so that lengths and prediction errors drift."""
    rng, config = random.Random(seed), FenceConfig()
    rows = answers_of(prompts)
    uppers = backend.predict([view(prompt) for prompt, _ in rows]).tokens[:, 1]  # 90 % quantiles
    sources = sorted({prompt.source for prompt, _ in rows})
    calibration = FenceCalibration(config)
    missed: Counter[int] = Counter()
    counted: Counter[int] = Counter()
    order = [place for phase in range(PHASES) for place in _phase(rows, sources, phase, rng)]
    for number, place in enumerate(order):
        prompt, answer = rows[place]
        fence = calibration.fence(number / RATE)
        bucket = _bucket(fence, prompt.tokens)
        upper = float(uppers[place]) * (bucket.factor if bucket is not None else 1.0)
        if number >= WARM_UP and bucket is not None:
            counted[bucket.prompt_upto] += 1
            missed[bucket.prompt_upto] += answer.tokens > upper
        finished = _finished(str(number), prompt.tokens, answer.tokens, float(uppers[place]), upper)
        calibration.finished(number / RATE, "worker", finished)
    return FenceFigures(
        config.epsilon,
        counted.total(),
        missed.total() / counted.total(),
        tuple(bucket_of(upto, counted[upto], missed[upto]) for upto in sorted(counted)),
    )


def _phase(rows: Sequence[tuple[Prompt, object]], sources: list[str], phase: int, rng: random.Random) -> list[int]:
    weight = {source: 10.0 if index % PHASES == phase else 1.0 for index, source in enumerate(sources)}
    each = Counter(prompt.source for prompt, _ in rows)
    odds = [weight[prompt.source] / each[prompt.source] for prompt, _ in rows]
    return rng.choices(range(len(rows)), odds, k=REQUESTS // PHASES)


def _bucket(fence: Fence, prompt_tokens: int) -> FenceBucket | None:
    buckets = (bucket for table in fence.tables if not table.tenant for bucket in table.buckets)
    return next((bucket for bucket in buckets if prompt_tokens <= bucket.prompt_upto), None)


def bucket_of(upto: int, count: int, missed: int) -> Bucket:
    """Returns the bucket of prompts of at most `upto` tokens, in which `missed` of `count` answers outgrew their
    bound."""
    interval = binomtest(missed, count).proportion_ci()
    return Bucket(
        prompt_upto=upto, requests=count, missed=missed / count, low=float(interval.low), high=float(interval.high)
    )


def _finished(name: str, prompt_tokens: int, output_tokens: int, p90: float, upper: float) -> RequestFinished:
    return RequestFinished(
        request_id=name, tenant="", task=TaskType.UNKNOWN, engine="", outcome=Outcome.FINISHED,
        prompt_tokens=prompt_tokens, output_tokens=output_tokens, predicted_output_tokens_p90=p90,
        upper_output_tokens=upper, predictor="model", run_s=0.0, prefill_s=0.0,
        tpot_s=0.0, tpot_slo_s=0.0, censored=False, age_s=0.0,
    )  # fmt: skip
