"""Flow regulation: the inner loop on the token budget (H-MAS Algorithm 2, line 11; §3.5)."""

from hmas.contracts.control import EngineControl


class FlowRegulator:
    """B <- Proj[b_min, b_max](B - gain_b * e), e = u - clip(u, [u_low, u_high]), once for each new measurement of u.

    The tuple's `b_token` is where the loop starts when a control comes into force; from then on only the error and
    the bounds move it. `saturated`: -1 while an error pushes against the lower bound, +1 against the upper one.

    The lower bound protects what already runs (its decodes, and one sequence's prefill). Over plain HTTP a budget at
    or above the running sequences cannot slow them, it only lets in more; so while over-utilisation pushes against
    the lower bound (`saturated` is -1), the pump dispatches nothing new to a working engine.
    """

    __slots__ = ("_budget", "saturated", "started")

    def __init__(self) -> None:
        self._budget = 0.0
        self.saturated = 0
        self.started = False

    @property
    def b_token(self) -> int:
        return int(self._budget)

    def stop(self) -> None:
        """No control in force."""
        self.started = False
        self.saturated = 0

    def relax(self) -> None:
        """Frozen, or nothing measured of late: the budget stays, nothing is held back."""
        self.saturated = 0

    def adopt(self, control: EngineControl, floor: int) -> None:
        """A tuple came. `floor`: running decodes plus what keeps a prefill moving."""
        if not self.started:
            self.started = True
            self._budget = float(control.b_token)
        self._project(control, floor)

    def regulate(self, utilisation: float, control: EngineControl, floor: int) -> None:
        error = utilisation - min(control.u_high, max(control.u_low, utilisation))
        self._budget -= control.gain_b * error
        low, high = self._project(control, floor)
        self.saturated = 0
        if error > 0.0 and self._budget <= low:
            self.saturated = -1
        elif error < 0.0 and self._budget >= high:
            self.saturated = 1

    def _project(self, control: EngineControl, floor: int) -> tuple[float, float]:
        low = float(max(1, control.b_min, floor))
        high = max(low, float(control.b_max))
        self._budget = min(high, max(low, self._budget))
        return low, high
