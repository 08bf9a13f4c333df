"""Dynamic chunking: how long a step may last so that no decode's next token is late for it (Niyama §3.3).

Token deadlines are cumulative (Niyama Eq. 2): a request that is ahead of its pace lends what it is ahead to prefill.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass
from math import inf

MIN_CHUNK_TOKENS = 64  # while a decode is late whatever is done, prefill goes on by this much a step


@dataclass(frozen=True, slots=True)
class TokenDeadline:
    """Token n is due at `first_due_s + (n - 1) * tpot_s`, on the clock of the engine's driver.

    `first_due_s` None: the first token counts as just in time whenever it comes (a TPOT SLO alone, DESIGN §8).
    ValueError unless `tpot_s` is above 0.
    """

    tpot_s: float
    first_due_s: float | None = None

    def __post_init__(self) -> None:
        if not self.tpot_s > 0.0:
            raise ValueError("tpot_s must be above 0")


@dataclass(frozen=True, slots=True)
class Allowance:
    """What prefill may take of a step, seconds and tokens."""

    seconds: float = inf
    tokens: float = inf


UNBOUNDED = Allowance()


class TokenDeadlines:
    """When the next tokens of sequences are due that gain a token each at every step.

    Kept per TPOT as sorted due times, each as if no step had ended yet: after `ended` steps all of one TPOT are
    `ended * tpot_s` later, in the same order. So a step costs a search per distinct TPOT.
    """

    def __init__(self) -> None:
        self._dues: dict[float, list[float]] = {}

    def add(self, tpot_s: float, due_s: float) -> None:
        insort(self._dues.setdefault(tpot_s, []), due_s)

    def remove(self, tpot_s: float, due_s: float) -> None:
        """What was added."""
        dues = self._dues[tpot_s]
        del dues[bisect_left(dues, due_s)]
        if not dues:
            del self._dues[tpot_s]

    def allowance(self, now_s: float, ended: int, bare_s: float, least_s: float) -> Allowance:
        """What prefill may take of the step that begins now, `ended` steps after the first.

        `bare_s` is the step without prefill, `least_s` with a chunk of `MIN_CHUNK_TOKENS`. A decode that the bare step
        serves in time stays in time. One that is late already holds the chunk at the minimum, and so does one whose
        TPOT is shorter than `least_s` once it has used up its slack: no schedule that computes prompts at all keeps
        that, and waiting for it would stop prefill for good.
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
