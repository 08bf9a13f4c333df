"""What may happen to an engine of a card in each state, as a table."""

from collections.abc import Mapping
from enum import StrEnum

from hmas.contracts.residency import Readiness


class Signal(StrEnum):
    """The begin of a move of ours (start, drain, sleep, wake), or how one ended: done, or failed."""

    START = "start"
    DRAIN = "drain"
    SLEEP = "sleep"
    WAKE = "wake"
    DONE = "done"
    FAIL = "fail"


R, S = Readiness, Signal
TRANSITIONS: Mapping[tuple[Readiness, Signal], Readiness] = {
    (R.COLD, S.START): R.STARTING,
    (R.STARTING, S.DONE): R.AWAKE,
    (R.STARTING, S.FAIL): R.FAILED,
    (R.ASLEEP, S.WAKE): R.WAKING,
    (R.WAKING, S.DONE): R.AWAKE,
    (R.WAKING, S.FAIL): R.FAILED,
    (R.AWAKE, S.DRAIN): R.DRAINING,
    (R.AWAKE, S.SLEEP): R.FALLING,
    (R.DRAINING, S.SLEEP): R.FALLING,
    (R.FALLING, S.DONE): R.ASLEEP,
    (R.FALLING, S.FAIL): R.FAILED,
}
MOVING = frozenset({R.STARTING, R.WAKING, R.FALLING})  # the engine has been asked for something and has not answered
STABLE = frozenset({R.COLD, R.AWAKE, R.ASLEEP})  # what an engine may say of itself


def after(readiness: Readiness, signal: Signal) -> Readiness:
    """Returns the state that follows. Raises ValueError if the signal does not belong into this state."""
    try:
        return TRANSITIONS[readiness, signal]
    except KeyError:
        allowed = [s.value for r, s in TRANSITIONS if r is readiness]
        raise ValueError(
            f"{signal.value} is not possible while an engine is {readiness.value}: "
            f"{', '.join(allowed) or 'only what the engine says of itself'} is"
        ) from None


def holds_gb(readiness: Readiness, awake_gb: float, asleep_gb: float) -> float:
    """Returns the memory to count for an engine, in GB: all that it may take until it is known to take less."""
    if readiness is Readiness.COLD:
        return 0.0
    return asleep_gb if readiness is Readiness.ASLEEP else awake_gb
