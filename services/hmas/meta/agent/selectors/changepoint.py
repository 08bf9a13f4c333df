"""Change-point detection and a look-up table (H-MAS App. C.2): a new regime of the workload is detected by Page and
Hinkley's test on its scaled features, and gets the topology that served the nearest known regime best."""

from river.drift import PageHinkley

from hmas.contracts.control import Hints
from hmas.contracts.views import VLong
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.features import FEATURES, features, settled
from hmas.meta.agent.selectors.learned import Learned
from hmas.meta.agent.selectors.selector import Choice

WATCHED = tuple(
    FEATURES.index(name) for name in ("log_prompt_mean", "log_output_mean", "mismatch_mean", "log_backlog_s")
)


class ChangePointSelector:
    """Chooses a new topology when the workload changes. There is one detector per watched feature; when one of them
    fires, all start anew."""

    name = "changepoint"

    def __init__(self, config: RulesConfig, table: Learned) -> None:
        self._min_settled = config.min_settled
        self._table = table
        self._started = False
        self._reset()

    def _reset(self) -> None:
        # Features are scaled to unit deviation: half a deviation is tolerated, an excess of two in sum is a change.
        self._detectors = {i: PageHinkley(min_instances=3, delta=0.5, threshold=2.0) for i in WATCHED}

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        count = settled(view)
        if count < self._min_settled:
            return Choice(current.topology, current.hints, f"kept: {count} requests settled, too few to judge")
        values = features(view)
        changed = self._changed(self._table.scaled(values))
        if self._started and changed is None:
            return Choice(current.topology, current.hints, "kept: no change of regime")
        self._started = True
        self._reset()
        regime = self._table.nearest(values)
        why = f"{changed} changed" if changed is not None else "first look"
        return Choice(regime.topology, Hints(), f"{why}: most like {regime.name}")

    def _changed(self, scaled: tuple[float, ...]) -> str | None:
        fired = None
        for i, detector in self._detectors.items():
            detector.update(scaled[i])  # type: ignore[no-untyped-call]
            if detector.drift_detected:
                fired = FEATURES[i]
        return fired
