"""What the steps of one engine cost, learnt from its samples."""

from hmas.contracts.control import StepTime
from hmas.contracts.telemetry import EngineSample
from hmas.laws.pace_fit import PaceFit
from hmas.statera.agent.config import StepMeterConfig


class StepMeter:
    """Fits the pace law (`hmas.laws.pace`) to an engine's samples.

    Where requests come as others end, an engine computes as many prompt tokens for each token that it decodes as
    requests have in the mean. So the prompts' part of a step grows with the sequences that decode in it.
    """

    __slots__ = ("_config", "_decoded", "_fit", "_known", "_observed", "_prefilled", "cost")

    def __init__(self, config: StepMeterConfig, engine: str) -> None:
        self._config = config
        self._fit = PaceFit(config.fit)
        self._observed = 0
        self._prefilled = self._decoded = 0.0  # sums of tokens/s, in which older samples count less
        self._known = dict(config.known).get(engine)
        self.cost = self._known  # None while too little was observed

    def observe(self, now_s: float, sample: EngineSample) -> None:
        config = self._config
        if self._known is not None:
            return
        self._fit.add(now_s, sample)
        self._prefilled = config.keep * self._prefilled + sample.prefill_tokens_per_s
        self._decoded = config.keep * self._decoded + sample.decode_tokens_per_s
        if self._fit.observations == self._observed or self._fit.observations < config.observations:
            return
        self._observed = self._fit.observations
        law = self._fit.view("", sample.engine)
        prompts_s = law.prompt_s * self._prefilled / self._decoded if self._decoded > 0.0 else 0.0
        self.cost = StepTime(law.base_s, law.sequence_s + prompts_s, law.context_s) if law.observations else None
