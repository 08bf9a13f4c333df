"""Corrects a cost model's times for one kind of engine of a worker by what was measured there (ADR 0009, ADR 0050)."""

from collections import OrderedDict
from dataclasses import dataclass, field
from math import log

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost
from hmas.contracts.telemetry import RequestFinished
from hmas.prediction.agent.backend import CostQuery
from hmas.prediction.agent.measured_line import MeasuredLine
from hmas.prediction.agent.residual import ResidualScale

_GAIN = 0.03  # averages about the last thirty errors
_MOST = 2.0  # larger errors are cut to this, because a stalled engine tells nothing about either predictor
_LEAST_S = 1e-9


class MeasuredTime:
    """Predicts one kind of time of a worker, in one of two ways: as the model's time multiplied by a factor, or by a
    line over `x` that was fitted to the worker's own times.

    It uses the way whose recent errors were smaller, and the line if there is no difference. The line is better where
    the model does not know the hardware; the model, which reads more than one quantity, is better where it knows
    similar hardware.
    """

    def __init__(self, line: MeasuredLine) -> None:
        self._scale = ResidualScale()
        self._line = line
        self._line_ahead = 0.0  # mean error of the factor's way minus that of the line, in the logarithm

    @property
    def factor(self) -> float:
        """The factor on the model's times."""
        return self._scale.factor

    def seconds(self, x: float, modelled_s: float) -> float:
        if self._line.known and self._line_ahead >= 0.0:
            return self._line.seconds(x)
        return modelled_s * self.factor

    def learn(self, x: float, modelled_s: float, measured_s: float) -> None:
        """Learns from a time measured at `x`: prompt tokens for the prefill time, sequences for the time per token.
        `modelled_s` is the cost model's time before any correction. Times of 0 or less are ignored."""
        if self._line.known and modelled_s > 0.0 and measured_s > 0.0:
            ahead = _error(modelled_s * self.factor, measured_s) - _error(self._line.seconds(x), measured_s)
            self._line_ahead += _GAIN * (ahead - self._line_ahead)
        self._scale.update(measured_s, modelled_s)
        self._line.observe(x, measured_s)


def _error(predicted_s: float, measured_s: float) -> float:
    return min(_MOST, abs(log(max(_LEAST_S, predicted_s) / measured_s)))


def _prefill() -> MeasuredTime:
    return MeasuredTime(MeasuredLine(scale=256.0, origin=0.02))  # over prompt tokens, of which 0 take no time


def _tpot() -> MeasuredTime:
    return MeasuredTime(MeasuredLine(scale=64.0, flat=16.0))  # over sequences; flat if only one batch size was seen


@dataclass(slots=True)
class MeasuredKind:
    """Corrects both costs for one kind of engine of one worker: the prefill time and the time per output token."""

    ttft: MeasuredTime = field(default_factory=_prefill)
    tpot: MeasuredTime = field(default_factory=_tpot)

    def cost(self, prompt_tokens: int, running: int, modelled: Cost) -> Cost:
        """Returns the corrected cost of a prompt that runs beside `running` sequences; `modelled` is the model's."""
        return Cost(self.ttft.seconds(prompt_tokens, modelled.ttft_s), self.tpot.seconds(running + 1, modelled.tpot_s))

    def learn(self, prompt_tokens: int, running: int, modelled: Cost, measured: Cost) -> None:
        """Learns from the `measured` cost of a finished request; `modelled` is the model's uncorrected cost."""
        self.ttft.learn(prompt_tokens, modelled.ttft_s, measured.ttft_s)
        self.tpot.learn(running + 1, modelled.tpot_s, measured.tpot_s)


class MeasuredWorkers:
    """The corrections by worker and kind of engine. Beyond `most` of them, the one that learnt nothing for longest is
    forgotten."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._measured: OrderedDict[tuple[str, EngineKind], MeasuredKind] = OrderedDict()

    def __len__(self) -> int:
        return len(self._measured)

    def cost(self, worker: str, query: CostQuery, modelled: Cost) -> Cost:
        """Returns the corrected cost of a query; `modelled` is the model's."""
        measured = self._measured.get((worker, query.kind))
        return modelled if measured is None else measured.cost(query.prompt_tokens, query.running, modelled)

    def learn(self, worker: str, query: CostQuery, modelled: Cost, measured: Cost) -> None:
        """Learns from the `measured` cost of a query; `modelled` is the model's uncorrected cost."""
        key = worker, query.kind
        known = self._measured.setdefault(key, MeasuredKind())
        self._measured.move_to_end(key)
        if len(self._measured) > self._most:
            self._measured.popitem(last=False)
        known.learn(query.prompt_tokens, query.running, modelled, measured)

    def factors(self, worker: str) -> dict[EngineKind, tuple[float, float]]:
        """Returns the factors on the model's prefill time and TPOT for each kind of a worker's engines."""
        return {
            kind: (measured.ttft.factor, measured.tpot.factor)
            for (name, kind), measured in self._measured.items()
            if name == worker
        }


def measured_cost(finished: RequestFinished) -> Cost:
    """Returns what a finished request cost: its own prefill, and its time per output token, 0 without a second one."""
    return Cost(finished.own_prefill_s, finished.tpot_s if finished.output_tokens > 1 else 0.0)
