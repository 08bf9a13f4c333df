"""Faults of a simulated mesh, as data."""

from dataclasses import dataclass
from enum import StrEnum


class FaultKind(StrEnum):
    """What may happen. Targets are processes, engines, or pairs of them joined by a hyphen, gateway first.

    - kill: a worker or gateway (`w0`, `g0`) ends for good. restart: it ends and comes back, with empty books and a new
      incarnation, at `until_s`. What clients have at a gateway that ends is lost for them.
    - freeze: a worker, gateway or engine (`e0`) does nothing until `until_s`.
    - hang: an engine gives no token until `until_s`, while it answers its worker as if it were well.
    - sleep: somebody puts an engine to sleep until `until_s`, as vLLM's level 0 does with `mode=keep`: it says so, and
      what is there goes on afterwards.
    - slow: an engine's steps take `factor` times as long until `until_s`.
    - part: nothing passes between a gateway and a worker (`g0-w1`) or an engine (`g0-e2`). An engine and a gateway that
      are parted both lose their open connections at once.
    - break: the stream of a gateway and a worker is closed, and what is on its way is lost.
    - delay: messages between a gateway and a worker take `delay_s` longer.
    """

    KILL = "kill"
    RESTART = "restart"
    FREEZE = "freeze"
    HANG = "hang"
    SLEEP = "sleep"
    SLOW = "slow"
    PART = "part"
    BREAK = "break"
    DELAY = "delay"


LASTING = frozenset(
    {
        FaultKind.RESTART,
        FaultKind.FREEZE,
        FaultKind.HANG,
        FaultKind.SLEEP,
        FaultKind.SLOW,
        FaultKind.PART,
        FaultKind.DELAY,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """Something that happens to every `target` (a name, or a pattern such as `w*`) at the instant `at_s`, and ends at
    `until_s`; both in s. Raises ValueError if the fault makes no sense."""

    at_s: float
    kind: FaultKind
    target: str
    until_s: float | None = None
    delay_s: float = 0.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        if (self.kind in LASTING) is (self.until_s is None):
            must = "needs" if self.kind in LASTING else "must not have"
            raise ValueError(f"the fault {self.kind} of {self.target} {must} an until_s")
        if self.at_s < 0.0 or (self.until_s is not None and self.until_s < self.at_s):
            raise ValueError(f"the fault {self.kind} of {self.target} must have 0 <= at_s <= until_s")
        if (self.delay_s > 0.0) is not (self.kind is FaultKind.DELAY):
            raise ValueError(f"delay_s belongs to a fault of kind delay, not to {self.kind} of {self.target}")
        if not self.factor > 0.0 or (self.factor != 1.0) is not (self.kind is FaultKind.SLOW):
            raise ValueError(f"factor belongs to a fault of kind slow, not to {self.kind} of {self.target}")
