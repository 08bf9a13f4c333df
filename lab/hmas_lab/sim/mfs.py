"""The order of flows in *Multi-stage Flow Scheduling for LLM Serving* (MFS), as keys for the simulated network.

A flow belongs to a stage: KV that is reused, a collective, or the hand-over from prefill to decode. The first two
block a layer, so their urgency is how many layers off that is (§4.4.1). Only hand-overs have a deadline of their own.
They wait until little more than their bytes can pass the port before it (§4.3).
"""

from collections.abc import Sequence
from itertools import pairwise
from math import inf

from hmas.laws.transfer_order import TransferKey

LEVELS, STEP, URGENT = 8, 4.0, 0.5  # K, E and U of §4.3


def mlu(left: float, remaining_s: float, bytes_s: float, load: float = 0.0) -> float:
    """Returns the minimal link utilization of a hand-over: the share of what the port moves beside its `load` (0 to 1)
    that the hand-over needs from now on; infinite where its time is over (§4.3)."""
    return left / (remaining_s * bytes_s * (1.0 - load)) if remaining_s > 0.0 else inf


def level(urgency: float, levels: int = LEVELS, step: float = STEP, urgent: float = URGENT) -> int:
    """Returns the level of a utilization, 1 for the most urgent. Level i begins at `urgent` · `step`^(1 − i), which is
    the paper's Q_i without its division by `step`: by that, level 1 would begin at an eighth of the link (§4.3)."""
    return next((i for i in range(1, levels) if urgency >= urgent * step ** (1 - i)), levels)


def promoted_s(left: float, due_s: float, bytes_s: float, urgent: float = URGENT) -> float:
    """Returns when a hand-over that gets nothing until then reaches level 1 (§4.3)."""
    return due_s - left / (bytes_s * urgent)


def rli(target: int, current: int) -> int:
    """Returns the relative layer index of a flow that layer `target` waits for while layer `current` runs, or waits
    (§4.4.1)."""
    return target - current


def red(deadlines_s: Sequence[float]) -> float:
    """Returns the robust effective deadline of a batch, which is split at the largest gap between deadlines: f · the
    first of the tight ones + (1 − f) · the first of the loose ones, where f is the share of the tight ones (§4.4.2,
    Appendix B). Of equal gaps the first counts, and one deadline is itself. Raises ValueError for none."""
    ordered = sorted(deadlines_s)
    if not ordered:
        raise ValueError("a batch without requests has no deadline")
    if len(ordered) == 1:
        return ordered[0]
    gaps = [later - sooner for sooner, later in pairwise(ordered)]
    tight = gaps.index(max(gaps)) + 1
    share = tight / len(ordered)
    return share * ordered[0] + (1.0 - share) * ordered[tight]


def blocking(target: int, current: int, red_s: float = 0.0, levels: int = LEVELS) -> TransferKey:
    """Returns the key of a flow that blocks a layer: below the level of the most urgent hand-overs, by its relative
    layer index as far as there are levels, then by its batch's effective deadline (§4.5)."""
    return 1.0, float(min(rli(target, current), levels - 2)), red_s


def hand_over(at_level: int, due_s: float) -> TransferKey:
    """Returns the key of a hand-over: before all else at level 1, behind all that blocks a layer below it (§4.5)."""
    return (0.0, due_s) if at_level == 1 else (2.0, float(at_level), due_s)
