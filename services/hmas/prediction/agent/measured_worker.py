"""What a worker's own times say of it, over what a cost model says (ADR 0009)."""

from dataclasses import dataclass, field
from math import log

from hmas.contracts.request import Cost
from hmas.prediction.agent.measured_line import MeasuredLine
from hmas.prediction.agent.residual import ResidualScale

_GAIN = 0.03  # about the last thirty errors
_MOST = 2.0  # a stalled engine says nothing of either
_LEAST_S = 1e-9


class MeasuredTime:
    """One of a worker's times: the model's times a factor, or a line over `x` once that is known. The one that has
    erred less of late answers, the line where there is no difference: it has the shape right where the model knows
    nothing, and the model knows more than one quantity where it knows the hardware's kin.
    """

    def __init__(self, line: MeasuredLine) -> None:
        self._scale = ResidualScale()
        self._line = line
        self._line_ahead = 0.0  # by how much it errs less, in the logarithm

    @property
    def factor(self) -> float:
        """On the model's times."""
        return self._scale.factor

    def seconds(self, x: float, modelled_s: float) -> float:
        if self._line.known and self._line_ahead >= 0.0:
            return self._line.seconds(x)
        return modelled_s * self.factor

    def learn(self, x: float, modelled_s: float, measured_s: float) -> None:
        """`modelled_s` is uncorrected. A time that is not positive teaches nothing."""
        if self._line.known and modelled_s > 0.0 and measured_s > 0.0:
            ahead = _error(modelled_s * self.factor, measured_s) - _error(self._line.seconds(x), measured_s)
            self._line_ahead += _GAIN * (ahead - self._line_ahead)
        self._scale.update(measured_s, modelled_s)
        self._line.observe(x, measured_s)


def _error(predicted_s: float, measured_s: float) -> float:
    return min(_MOST, abs(log(max(_LEAST_S, predicted_s) / measured_s)))


def _prefill() -> MeasuredTime:
    return MeasuredTime(MeasuredLine(scale=256.0, origin=0.02))  # over prompt tokens: none take no time


def _tpot() -> MeasuredTime:
    return MeasuredTime(MeasuredLine(scale=64.0, flat=16.0))  # over sequences that decode; of one batch alone: no other


@dataclass(slots=True)
class MeasuredWorker:
    """A worker's prefill time and time per output token."""

    ttft: MeasuredTime = field(default_factory=_prefill)
    tpot: MeasuredTime = field(default_factory=_tpot)

    def cost(self, prompt_tokens: int, running: int, modelled: Cost) -> Cost:
        """Of a prompt beside `running` sequences."""
        return Cost(self.ttft.seconds(prompt_tokens, modelled.ttft_s), self.tpot.seconds(running + 1, modelled.tpot_s))

    def learn(self, prompt_tokens: int, running: int, modelled: Cost, measured: Cost) -> None:
        """`modelled` is uncorrected."""
        self.ttft.learn(prompt_tokens, modelled.ttft_s, measured.ttft_s)
        self.tpot.learn(running + 1, modelled.tpot_s, measured.tpot_s)
