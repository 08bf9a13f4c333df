"""How much prefill may be pending on an engine, so that the requests that run there keep their TPOT SLOs.

An engine computes the prompts that it has beside each token of those that decode, so that a step takes as long as a
bare one and the prompts in it. A running request keeps its TPOT if its further steps take, in the mean, at most

    budget = (instant at which its last token is due - now) / tokens that it has yet to produce

with the length that is predicted of it. The window is the budget that all running requests have but the share
`given_up` with the tightest ones, less a bare step: to keep those too would leave more prompts late than it keeps
answers on pace. This is Niyama's dynamic chunking (§3.3) at the grain of grants, for engines with chunks of their own.
"""

from collections.abc import Iterable
from math import inf

from hmas.laws.least import LeastLately
from hmas.worker.agent.config import PrefillWindowConfig
from hmas.worker.agent.entry.entry import QueueEntry


class PrefillWindow:
    """The window of one engine. Times are in s.

    A bare step is the shortest that was seen lately, since an engine tells only means over steps with and without
    prompts. `paced`: the engine itself makes its chunks as large as the paces of what runs allow (the scheduler
    plug-in), so that the window only has to fill them.
    """

    __slots__ = ("_bare", "_config", "_seconds", "_worked_out_s", "paced")

    def __init__(self, config: PrefillWindowConfig) -> None:
        self._config = config
        self._bare = LeastLately(config.memory_s)
        self._seconds = config.most_s
        self._worked_out_s = -inf
        self.paced = False

    def see_step(self, now_s: float, step_s: float) -> None:
        """Learns from a measured step; one of 0 s tells that the engine did nothing."""
        if step_s > 0.0:
            self._bare.see(now_s, step_s)

    def seconds(self, now_s: float, running: Iterable[QueueEntry]) -> float:
        """Returns the window, for the requests `running` on the engine."""
        config = self._config
        if self.paced:
            return config.paced_s
        if now_s - self._worked_out_s < config.kept_s:
            return self._seconds
        self._worked_out_s = now_s
        bare_s = self._bare.value
        budgets = sorted(budget for entry in running if (budget := _budget_s(now_s, entry)) > bare_s)
        free_s = budgets[int(config.given_up * len(budgets))] - bare_s if budgets else inf
        self._seconds = min(config.most_s, max(config.least_s, free_s))
        return self._seconds


def _budget_s(now_s: float, entry: QueueEntry) -> float:
    """Returns the mean time that the further steps of a request may take, at most 0 if it cannot keep its TPOT or has
    none to keep."""
    first_s, pace_s = entry.first_token_s, entry.pace_s
    if first_s is None or pace_s is None:
        return 0.0
    done = max(1, entry.output_tokens)
    left = max(1.0, entry.predicted_tokens - done)
    return (first_s + (done + left - 1.0) * pace_s - now_s) / left
