"""Flow regulation: the worker's inner control loop on an engine's token budget (H-MAS Algorithm 2, line 11; §3.5)."""

from hmas.contracts.control import EngineControl


class FlowRegulator:
    """Moves one engine's token budget B so that its utilisation u stays in the band [u_low, u_high].

    B <- Proj[b_min, b_max](B - gain_b * e), e = u - clip(u, [u_low, u_high]), once for each new measurement of u.

    The loop starts from the tuple's `b_token` when a control comes into force; from then on only the error and the
    bounds move B. `saturated` is -1 while an error pushes B against its lower bound, +1 against its upper one, 0
    otherwise.

    The lower bound protects what already runs (its decodes, and one sequence's prefill). Over plain HTTP a budget at
    or above the running sequences cannot slow them, it only lets in more; so while over-utilisation pushes against
    the lower bound (`saturated` is -1), the pump dispatches nothing new to an engine that has work.
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
        """Ends regulation because no control is in force; the next control starts it afresh."""
        self.started = False
        self.saturated = 0

    def relax(self) -> None:
        """Pauses regulation, because it is frozen or nothing was measured lately: the budget stays as it is, and no
        dispatch is held back."""
        self.saturated = 0

    def adopt(self, control: EngineControl, floor: int) -> None:
        """Takes the bounds of a new control tuple, and its `b_token` if no control was in force before.

        `floor`: the sequences that decode, plus one if any is in prefill; the budget stays at or above it.
        """
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
