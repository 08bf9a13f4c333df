"""How many sequences an engine may run so that its steps take as long as promised: N_run in closed form."""

from math import inf

from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent.config import SetPointConfig


class SetPoint:
    """The set-point of one engine's N_run, from what is measured of its steps.

    With R sequences in the mean a step takes base + c·R seconds, where c holds what a sequence costs by itself, by its
    context, and by the prompts that are computed for those that come in its place (the pace law, `hmas.laws.pace`).
    That line goes through the means of both, in which older samples count less and less, and through the shortest step
    seen. Where this is the step of as many sequences, c is at most what it would be without a base. A single sample
    tells little: with few sequences one long prompt makes a step several times as long. So `doubt` samples in which
    `n_max` sequences just meet the goal count beside those seen, and an engine that was hardly used is not held back.
    If the shortest step is out of date, the way to the set-point is longer or shorter, but its place is the same.
    """

    __slots__ = ("_config", "_fewest", "_n_max", "_running", "_samples", "_shortest_s", "_slo_s", "_steps_s")

    def __init__(self, config: SetPointConfig, n_max: int) -> None:
        self._config = config
        self._n_max = n_max
        self._slo_s = self._shortest_s = inf
        self._fewest = 0  # sequences that ran in the shortest step
        self._samples = self._running = self._steps_s = 0.0  # sums over samples, the newest with a weight of 1

    def observe(self, sample: EngineSample) -> None:
        self._see_slo(sample)
        if sample.running > 0 and sample.step_s > 0.0:
            keep = self._config.keep
            self._samples = keep * self._samples + 1.0
            self._running = keep * self._running + sample.running
            self._steps_s = keep * self._steps_s + sample.step_s
            if sample.step_s < self._shortest_s:
                self._shortest_s, self._fewest = sample.step_s, sample.running

    def _see_slo(self, sample: EngineSample) -> None:
        """Utilisation tells the TPOT SLO that is worth keeping where it is the step over that SLO; where it is the use
        of memory, the SLO is no shorter than the step over that."""
        if sample.utilisation > sample.kv_usage:
            self._slo_s = sample.step_s / sample.utilisation
        elif sample.step_s > self._slo_s * sample.kv_usage:
            self._slo_s = sample.step_s / sample.kv_usage if sample.kv_usage > 0.0 else inf

    @property
    def sequences(self) -> float:
        """The N_run at which a step takes the share `share` of the TPOT SLO that is worth keeping; infinite without
        such an SLO."""
        goal_s, doubt = self._config.share * self._slo_s, self._config.doubt
        if not 0.0 < goal_s < inf:
            return inf
        count = self._samples + doubt
        running, step_s = (self._running + doubt * self._n_max) / count, (self._steps_s + doubt * goal_s) / count
        each_s = step_s / running
        if running > self._fewest:
            each_s = min(each_s, (step_s - self._shortest_s) / (running - self._fewest))
        return running + (goal_s - step_s) / each_s if each_s > 0.0 else inf
