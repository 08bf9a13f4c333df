"""The historical prior: what the worker assumes of a request that cognition has not tagged yet (H-MAS App. C.2)."""

from collections.abc import Hashable
from math import exp, log1p, sqrt
from typing import Generic, TypeVar

from hmas.worker.agent.config import WorkerPriorConfig
from hmas.worker.agent.entry.assumption import Assumption

Z90 = 1.2816  # standard normal 90 % quantile


class LengthCell:
    """A log-normal distribution fitted to the output lengths of a group of requests; old ones count less and less."""

    __slots__ = ("_memory", "count", "mean", "variance")

    def __init__(self, memory: int) -> None:
        """`memory`: the effective number of lengths remembered."""
        self._memory = memory
        self.count = 0
        self.mean = 0.0  # of log(1 + n)
        self.variance = 0.0

    def add(self, log_length: float) -> None:
        if self.count < self._memory:
            self.count += 1
        share = 1.0 / self.count
        delta = log_length - self.mean
        self.mean += share * delta
        self.variance = (1.0 - share) * (self.variance + share * delta * delta)

    def quantiles(self) -> tuple[float, float]:
        """Returns the median and the 90 % quantile of the fitted distribution, in tokens."""
        return exp(self.mean) - 1.0, exp(self.mean + Z90 * sqrt(self.variance)) - 1.0


Name = TypeVar("Name", bound=Hashable)


class LengthCells(Generic[Name]):
    """Length distributions by name of the group; beyond `max_cells` of them the oldest is forgotten."""

    __slots__ = ("_cells", "_max_cells", "_memory")

    def __init__(self, memory: int, max_cells: int) -> None:
        self._memory = memory
        self._max_cells = max_cells
        self._cells: dict[Name, LengthCell] = {}

    def __len__(self) -> int:
        return len(self._cells)

    def get(self, name: Name) -> LengthCell | None:
        return self._cells.get(name)

    def add(self, name: Name, log_length: float) -> None:
        """Adds a value (the logarithm of a length, or of a ratio of lengths) to the cell of that name, and makes the
        cell if there is none."""
        cell = self._cells.get(name)
        if cell is None:
            if len(self._cells) >= self._max_cells:
                del self._cells[next(iter(self._cells))]
            cell = self._cells[name] = LengthCell(self._memory)
        cell.add(log_length)


class Prior:
    """Estimates the output length and the cost of requests without tags from settled requests.

    Output lengths are learnt per tenant and prompt bucket (powers of two), per bucket over all tenants, and over all
    requests; the first of these with enough requests is used, otherwise the configured default. The prefill rate and
    the time per output token are learnt for the worker as a whole. At `max_cells` groups the oldest is forgotten.
    """

    def __init__(self, config: WorkerPriorConfig) -> None:
        self._cells: LengthCells[tuple[str, int]] = LengthCells(config.memory, config.max_cells)
        self._buckets: LengthCells[int] = LengthCells(config.memory, config.max_cells)
        self._all = LengthCell(config.memory)
        self._config = config
        self._prefill_s_per_token = 1.0 / config.prefill_tokens_per_s
        self._tpot_s = config.tpot_s

    def estimate(self, tenant: str, prompt_tokens: int) -> Assumption:
        cell = self._trusted(tenant, prompt_tokens.bit_length())
        ttft_s = prompt_tokens * self._prefill_s_per_token
        if cell is None:
            default = self._config
            return Assumption(default.output_tokens, default.output_tokens_p90, ttft_s, self._tpot_s)
        median, p90 = cell.quantiles()
        return Assumption(median, p90, ttft_s, self._tpot_s)

    def _trusted(self, tenant: str, bucket: int) -> LengthCell | None:
        trusted = self._config.min_count
        cell = self._cells.get((tenant, bucket))
        if cell is None or cell.count < trusted:
            cell = self._buckets.get(bucket)
            if cell is None or cell.count < trusted:
                cell = self._all if self._all.count >= trusted else None
        return cell

    def learn_length(self, tenant: str, prompt_tokens: int, output_tokens: int) -> None:
        """Records the answer length, in tokens, of a request that ended by itself."""
        bucket = prompt_tokens.bit_length()
        log_length = log1p(output_tokens)
        self._cells.add((tenant, bucket), log_length)
        self._buckets.add(bucket, log_length)
        self._all.add(log_length)

    def learn_prefill(self, prompt_tokens: int, seconds: float) -> None:
        """Records that a request's first token came `seconds` after its dispatch."""
        self._prefill_s_per_token += (seconds / max(prompt_tokens, 1) - self._prefill_s_per_token) / self._config.memory

    def learn_decode(self, tpot_s: float) -> None:
        self._tpot_s += (tpot_s - self._tpot_s) / self._config.memory
