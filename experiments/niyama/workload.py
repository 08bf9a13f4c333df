"""Makes the workloads of Niyama §4: Poisson arrivals, the lengths of a trace, and the three QoS classes of its Table 2
in equal shares."""

from dataclasses import dataclass, replace
from math import log
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hmas.contracts.request import Request, Slo, TaskType
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.workloads.arrivals import Instants, inhomogeneous, poisson

Source = Literal["synthetic", "azure-2023-code"]
Tokens = NDArray[np.int64]

PUBLISHED = {"prompt": (1930, 6251), "output": (8, 43)}  # p50 and p90 of Azure Code, Niyama Table 1
LONGEST_PROMPT = 8192  # the context of Llama 3; the published percentiles give no maximum
LONGEST_OUTPUT = 2048
AZURE_FILE = "traces/azure_2023_code.csv.gz"
Z90 = 1.2815515655446004  # standard normal quantile at 0.9

INTERACTIVE = Slo(6.0, 0.050)  # Table 2
CLASSES: tuple[tuple[str, Slo], ...] = (
    ("Q1", INTERACTIVE),
    ("Q2", Slo(600.0, 600.0, 600.0, whole=True)),
    ("Q3", Slo(1800.0, 1800.0, 1800.0, whole=True)),
)
LOW_PRIORITY = 1  # as in vLLM, a higher number is served later than 0
DIURNAL_S = 900.0  # Fig. 10: a quarter of an hour low, a quarter high


@dataclass(frozen=True, slots=True, kw_only=True)
class QosLoad:
    """A workload to make. `rate_rps` is offered throughout; with `peak_rps`, the two rates alternate every 15 minutes
    (Niyama §4.3). `low_share` is the share of each class that gets low priority. `source` names where lengths come
    from."""

    source: Source
    rate_rps: float
    duration_s: float
    seed: int
    peak_rps: float | None = None
    low_share: float = 0.0

    def at(self, rate_rps: float) -> "QosLoad":
        """Returns the same load at another rate."""
        return replace(self, rate_rps=rate_rps)


def build(load: QosLoad, data: Path | None) -> Workload:
    """Makes the workload. `data` is the folder of traces; raises ValueError if the source of lengths needs it and it is
    None."""
    rng = np.random.default_rng([load.seed, 0x716F73])
    arrivals = _arrivals(load, rng)
    prompts, outputs = _lengths(load.source, arrivals.size, data, rng)
    classes = rng.integers(0, len(CLASSES), arrivals.size)
    low = rng.random(arrivals.size) < load.low_share
    rows = zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), classes.tolist(), low.tolist(), strict=True)
    requests = tuple(_offered(i, *row) for i, row in enumerate(rows))
    return Workload(f"niyama-{load.source}", requests, load.duration_s)


def _arrivals(load: QosLoad, rng: np.random.Generator) -> Instants:
    if load.peak_rps is None:
        return poisson(load.rate_rps, load.duration_s, rng)
    low, high = load.rate_rps, load.peak_rps

    def rate(t: Instants) -> Instants:
        return np.where(t % (2 * DIURNAL_S) < DIURNAL_S, low, high)

    return inhomogeneous(rate, high, load.duration_s, rng)


def _lengths(source: Source, count: int, data: Path | None, rng: np.random.Generator) -> tuple[Tokens, Tokens]:
    if source == "synthetic":
        return (
            _log_normal(*PUBLISHED["prompt"], LONGEST_PROMPT, count, rng),
            _log_normal(*PUBLISHED["output"], LONGEST_OUTPUT, count, rng),
        )
    if data is None:
        raise ValueError(f"the lengths of {source} need its trace: give the data folder as --data")
    rows = read_trace(str(data / AZURE_FILE), seed=0).rows
    pairs = np.array([(row.input_tokens, row.output_tokens) for row in rows])[rng.integers(0, len(rows), count)]
    return pairs[:, 0], pairs[:, 1]


def _log_normal(p50: float, p90: float, longest: int, count: int, rng: np.random.Generator) -> Tokens:
    drawn = p50 * np.exp(log(p90 / p50) / Z90 * rng.standard_normal(count))
    tokens: Tokens = np.clip(np.rint(drawn), 1, longest).astype(np.int64)
    return tokens


def _offered(index: int, arrival_s: float, prompt: int, output: int, qos: int, low: bool) -> OfferedRequest:
    name, slo = CLASSES[qos]
    request = Request(
        id=f"r{index:06d}", model="model", tenant=name, flow="", prompt_tokens=prompt, max_tokens=LONGEST_OUTPUT,
        stream=True, slo=slo, slo_stated=True, priority=LOW_PRIORITY if low else 0, weight=1.0, importance=0.75,
        arrival_s=arrival_s,
    )  # fmt: skip
    return OfferedRequest(request=request, output_tokens=output, slo=slo, task=TaskType.UNKNOWN)
