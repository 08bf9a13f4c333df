"""The historical prior: what is assumed of a request that cognition has not (yet) tagged (H-MAS App. C.2)."""

from collections.abc import Hashable
from dataclasses import dataclass
from math import exp, log1p, sqrt
from typing import Generic, TypeVar

from hmas.worker.agent.config import WorkerPriorConfig

Z90 = 1.2816  # standard normal 90 % quantile


@dataclass(frozen=True, slots=True)
class Assumption:
    """Median and 90 % quantile of the output length; prefill seconds and seconds per decode token."""

    output_tokens: float
    output_tokens_p90: float
    ttft_s: float
    tpot_s: float


class LengthCell:
    """Running log-normal fit of output lengths, exponentially forgetting."""

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
        """Median and 90 % quantile."""
        return exp(self.mean) - 1.0, exp(self.mean + Z90 * sqrt(self.variance)) - 1.0


Name = TypeVar("Name", bound=Hashable)


class LengthCells(Generic[Name]):
    """Cells by name, at most `max_cells` of them: the oldest goes first."""

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
        """One more length for the cell of that name, which is made if there is none."""
        cell = self._cells.get(name)
        if cell is None:
            if len(self._cells) >= self._max_cells:
                del self._cells[next(iter(self._cells))]
            cell = self._cells[name] = LengthCell(self._memory)
        cell.add(log_length)


class Prior:
    """Coarse length estimates per (tenant, power-of-two prompt bucket), pooled per bucket, pooled over all, then the
    configured default; one prefill rate and one decode time for the worker. Bounded: the oldest cell goes first."""

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
        """A request ended by itself with this real length."""
        bucket = prompt_tokens.bit_length()
        log_length = log1p(output_tokens)
        self._cells.add((tenant, bucket), log_length)
        self._buckets.add(bucket, log_length)
        self._all.add(log_length)

    def learn_prefill(self, prompt_tokens: int, seconds: float) -> None:
        """Dispatch to first token of one request."""
        self._prefill_s_per_token += (seconds / max(prompt_tokens, 1) - self._prefill_s_per_token) / self._config.memory

    def learn_decode(self, tpot_s: float) -> None:
        self._tpot_s += (tpot_s - self._tpot_s) / self._config.memory
