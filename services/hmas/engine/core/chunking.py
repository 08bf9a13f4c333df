"""Dynamic chunking: how long a step may last so that no decoding request's next token comes late (Niyama §3.3).

Token deadlines are cumulative (Niyama Eq. 2): the time by which a request is ahead of its deadlines is available to
prefill.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import inf

MIN_CHUNK_TOKENS = 64  # per step: what prefill gets while some decoding request is late in any case


@dataclass(frozen=True, slots=True)
class TokenDeadline:
    """A request's token deadlines: token n is due at `first_due_s + (n - 1) * tpot_s`.

    Times are on the clock of the engine's driver. If `first_due_s` is None, the first token counts as just in
    time whenever it comes (a TPOT SLO alone, DESIGN §8). Raises ValueError unless `tpot_s` is above 0.
    """

    tpot_s: float
    first_due_s: float | None = None

    def __post_init__(self) -> None:
        if not self.tpot_s > 0.0:
            raise ValueError(f"tpot_s must be above 0, got {self.tpot_s}")


@dataclass(frozen=True, slots=True)
class Allowance:
    """The most time (s) and tokens that prefill may add to one step."""

    seconds: float = inf
    tokens: float = inf


UNBOUNDED = Allowance()


class TokenDeadlines:
    """The due times of the next tokens of sequences that all gain one token at every step.

    For each TPOT it keeps the sorted due times as if no step had ended yet: after `ended` steps all due times of one
    TPOT are `ended * tpot_s` later, in the same order. A step therefore costs one search per distinct TPOT.
    """

    def __init__(self) -> None:
        self._dues: dict[float, list[float]] = {}

    def add(self, tpot_s: float, due_s: float) -> None:
        insort(self._dues.setdefault(tpot_s, []), due_s)

    def remove(self, tpot_s: float, due_s: float) -> None:
        """Removes a due time that `add` was given with the same arguments."""
        dues = self._dues[tpot_s]
        del dues[bisect_left(dues, due_s)]
        if not dues:
            del self._dues[tpot_s]

    def allowance(self, now_s: float, ended: int, bare_s: float, least_s: float) -> Allowance:
        """Returns the time (s) and tokens that prefill may add to the step at `now_s`, before which `ended` steps
        ended, so that no sequence becomes late by it; see below for those that are late in any case.

        `bare_s` is the duration of the step without prefill, `least_s` with a chunk of `MIN_CHUNK_TOKENS`. If a
        sequence is late even without prefill, the chunk is at most `MIN_CHUNK_TOKENS`. The same holds for one whose
        TPOT is shorter than `least_s` once it has no slack left: no schedule that computes prompts at all can keep that
        TPOT, and waiting for it would stop prefill for good.
        """
        step_s, late = inf, False
        for tpot_s, dues in self._dues.items():
            shift_s = ended * tpot_s - now_s
            first = bisect_left(dues, (bare_s if tpot_s >= least_s else least_s) - shift_s)
            if first:
                late = True
            if first < len(dues) and dues[first] + shift_s < step_s:
                step_s = dues[first] + shift_s
        return Allowance(max(0.0, step_s - bare_s), MIN_CHUNK_TOKENS if late else inf)
