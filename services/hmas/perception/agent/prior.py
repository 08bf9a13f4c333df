"""The historical prior, which estimates the output length of unknown requests (H-MAS §3.2, App. C.2).

It learns from settled requests which task type was the most frequent for a tenant and prompt length, and how long the
outputs of that type were. The weight of an observation halves with every half-life, so that recent ones count most.
"""

from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass, field

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import RequestSettled

VERSION = "prior-1"
_LOWEST, _RATIO, _BUCKETS = 8.0, 1.3, 32  # output tokens: 8, 10.4, ..., about 27,000
_EDGES = tuple(_LOWEST * _RATIO**i for i in range(_BUCKETS - 1))
_ANY = ""  # stands for all tenants together; no tenant has an empty name


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricalPriorConfig:
    half_life_s: float = 600.0
    prompt_edges: tuple[int, ...] = (128, 512, 2048, 8192)
    min_weight: float = 10.0  # a cell with less weight is passed over for the next coarser one
    max_cells: int = 2048
    default_output_tokens: float = 200.0  # chat traces have medians of 100 to 400
    default_p90: float = 800.0


@dataclass(frozen=True, slots=True)
class PriorEstimate:
    task: TaskType
    output_tokens: float
    output_tokens_p90: float


@dataclass(slots=True)
class _Cell:
    """A histogram of output tokens for each task type, over the requests of one tenant and prompt bucket, of one
    prompt bucket, or of all. Older requests weigh less."""

    updated_s: float
    weights: dict[TaskType, list[float]] = field(default_factory=dict)

    def add(self, now_s: float, task: TaskType, bucket: int, half_life_s: float) -> None:
        decay = 0.5 ** ((now_s - self.updated_s) / half_life_s)
        self.updated_s = now_s
        for row in self.weights.values():
            row[:] = [weight * decay for weight in row]
        self.weights.setdefault(task, [0.0] * _BUCKETS)[bucket] += 1.0

    def weight(self, now_s: float, half_life_s: float) -> float:
        total = sum(sum(row) for row in self.weights.values())
        return float(total * 0.5 ** ((now_s - self.updated_s) / half_life_s))

    def most_frequent(self) -> TaskType:
        """Returns the task type with the most weight, ties in order of name; `unknown` only if no other has any."""
        known: list[TaskType] = [t for t, row in self.weights.items() if t is not TaskType.UNKNOWN and any(row)]
        return min(known or list(self.weights), key=lambda task: (-sum(self.weights[task]), task.value))


class HistoricalPrior:
    """Estimates from the finest cell that has enough weight: that of the tenant and prompt bucket, that of the prompt
    bucket, that of all requests; without any, it gives a constant."""

    def __init__(self, config: HistoricalPriorConfig) -> None:
        self._config = config
        self._cells: OrderedDict[tuple[str, int], _Cell] = OrderedDict()

    def settle(self, now_s: float, settled: RequestSettled) -> None:
        """Learns from a settled request, if it finished; the length of any other is not known."""
        if settled.outcome is not Outcome.FINISHED or settled.output_tokens <= 0:
            return
        bucket = _output_bucket(settled.output_tokens)
        for key in self._keys(settled.tenant, settled.prompt_tokens):
            cell = self._cells.setdefault(key, _Cell(now_s))
            cell.add(now_s, settled.task, bucket, self._config.half_life_s)
            self._cells.move_to_end(key)
        while len(self._cells) > self._config.max_cells:
            self._cells.popitem(last=False)

    def estimate(self, now_s: float, tenant: str, prompt_tokens: int) -> PriorEstimate:
        for key in self._keys(tenant, prompt_tokens):
            cell = self._cells.get(key)
            if cell is not None and cell.weight(now_s, self._config.half_life_s) >= self._config.min_weight:
                task = cell.most_frequent()
                row = cell.weights[task]
                return PriorEstimate(task, _quantile(row, 0.5), _quantile(row, 0.9))
        return PriorEstimate(TaskType.UNKNOWN, self._config.default_output_tokens, self._config.default_p90)

    def _keys(self, tenant: str, prompt_tokens: int) -> tuple[tuple[str, int], ...]:
        bucket = bisect_left(self._config.prompt_edges, prompt_tokens)
        return (tenant, bucket), (_ANY, bucket), (_ANY, -1)


def _output_bucket(tokens: int) -> int:
    return bisect_left(_EDGES, tokens)


def _quantile(weights: list[float], q: float) -> float:
    """Returns the q-quantile in output tokens, interpolated within its bucket in the logarithm."""
    target, seen = q * sum(weights), 0.0
    for index, weight in enumerate(weights):
        if weight > 0.0 and seen + weight >= target:
            upper = _LOWEST * _RATIO**index
            return float(upper * _RATIO ** ((target - seen) / weight - 1.0))
        seen += weight
    return float(_LOWEST * _RATIO ** (_BUCKETS - 1))
