"""What a worker's own times say of it, over what a cost model says (ADR 0009)."""

from dataclasses import dataclass, field

from services.contracts.request import Cost
from services.prediction.measured_line import MeasuredLine
from services.prediction.residual import ResidualScale


@dataclass(slots=True)
class MeasuredWorker:
    """Factors on the model's own costs, and lines that take over once they are known: prefill over prompt tokens
    (none take no time), TPOT over the sequences that decode (of one batch size alone: it is no other).
    """

    ttft_scale: ResidualScale = field(default_factory=ResidualScale)
    tpot_scale: ResidualScale = field(default_factory=ResidualScale)
    ttft: MeasuredLine = field(default_factory=lambda: MeasuredLine(scale=256.0, origin=0.02))
    tpot: MeasuredLine = field(default_factory=lambda: MeasuredLine(scale=64.0, flat=16.0))

    def cost(self, prompt_tokens: int, running: int, modelled: Cost) -> Cost:
        """Of a prompt beside `running` sequences."""
        ttft_s, tpot_s = modelled.ttft_s * self.ttft_scale.factor, modelled.tpot_s * self.tpot_scale.factor
        if self.ttft.known:
            ttft_s = self.ttft.seconds(prompt_tokens)
        if self.tpot.known:
            tpot_s = self.tpot.seconds(running + 1)
        return Cost(ttft_s, tpot_s)

    def learn(self, prompt_tokens: int, running: int, modelled: Cost, measured: Cost) -> None:
        """`modelled` is uncorrected. A time that is not positive teaches nothing."""
        self.ttft_scale.update(measured.ttft_s, modelled.ttft_s)
        self.ttft.observe(prompt_tokens, measured.ttft_s)
        self.tpot_scale.update(measured.tpot_s, modelled.tpot_s)
        self.tpot.observe(running + 1, measured.tpot_s)
