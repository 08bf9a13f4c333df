"""What systems know of calls: medians over jobs that were there before, never a call's own length."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar

from experiments.maestro.workload import SLOWED, alone_s
from experiments.residency.models import CardModel
from experiments.residency.workload import move_s, tails_s
from hmas_lab.sim.jobs import SimJob

LAST = 6  # calls from here on count as one
UNHEARD_TOKENS = 200
Number = TypeVar("Number", int, float)
Place = tuple[str, int]  # an application, and how many calls of the job came before


class Outlook:
    """Forecasts by the place of a call in its application."""

    def __init__(self, before: Iterable[SimJob]) -> None:
        outputs, after = defaultdict[Place, list[int]](list), defaultdict[Place, list[float]](list)
        for job in before:
            tails = tails_s(job, moves=True)
            for number, call in enumerate(job.calls):
                place = job.template, min(number, LAST)
                outputs[place].append(call.offered.output_tokens)
                follow = [
                    tails[k] + job.calls[k].outside_s + move_s(job, number, k, True)
                    for k in range(number + 1, len(job.calls))
                    if number in job.calls[k].after
                ]
                after[place].append(max(follow, default=0.0))
        self._outputs = {place: sorted(found) for place, found in outputs.items()}
        self._after_s = {place: sorted(found) for place, found in after.items()}

    def rest_s(self, job: SimJob, number: int, model: CardModel, generated: int | None, share: float = 0.5) -> float:
        """Returns the seconds that a call still takes, longer than a `share` of earlier ones: all of it where
        `generated` is None, else the rest, by those answers of its place that became longer than what it has."""
        known = self._outputs.get((job.template, min(number, LAST)), [])
        prompt, profile = job.calls[number].offered.request.prompt_tokens, model.profile
        if generated is None:
            return SLOWED * alone_s(profile, prompt, _quantile(known, share) if known else UNHEARD_TOKENS)
        longer = known[bisect_right(known, generated) :]
        left = _quantile(longer, share) - generated if longer else UNHEARD_TOKENS
        step_s = alone_s(profile, prompt, 2) - alone_s(profile, prompt, 1)
        return SLOWED * left * step_s

    def after_s(self, job: SimJob, number: int, share: float = 0.5) -> float:
        """Returns the seconds from the end of a call to that of its job, which a `share` of earlier jobs kept."""
        known = self._after_s.get((job.template, min(number, LAST)), [])
        return SLOWED * _quantile(known, share) if known else 0.0


def _quantile(known: list[Number], share: float) -> Number:
    return known[int(share * (len(known) - 1))]
