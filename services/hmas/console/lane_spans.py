"""The spans that a request which ended leaves on its engines' lanes: one, or two if one engine computed its prompt for
another."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import RequestFinished


class SpanLeg(StrEnum):
    """What of a request an engine did."""

    WHOLE = "whole"
    PROMPT = "prompt"  # it computed the prompt for another engine
    ANSWER = "answer"  # it read the KV of the prompt from another engine, and answered


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpan:
    """What an engine did of a request that ended: when the request began to wait for it, when the engine began, when
    that gave the first token and when it was done, Unix s. Of a leg, `partner` is the engine that had the other one; an
    answer begins when its prompt is computed."""

    number: int
    request_id: str
    tenant: str
    worker: str
    engine: str
    outcome: Outcome
    queued_s: float
    granted_s: float
    first_s: float
    ended_s: float
    leg: SpanLeg = SpanLeg.WHOLE
    partner: str = ""


def lane_spans(
    numbered: Callable[[], int], worker: str, ended: RequestFinished, ended_s: float, waited_s: float
) -> list[LaneSpan]:
    """Returns the spans of a request that waited for its grant for `waited_s` and ended at `ended_s`; `numbered` gives
    each a number. One whose prompt was never computed has no span where it was to be answered."""
    granted_s = ended_s - ended.run_s

    def span(
        engine: str, queued_s: float, begun_s: float, first_s: float, done_s: float, outcome: Outcome = ended.outcome,
        leg: SpanLeg = SpanLeg.WHOLE, partner: str = "",
    ) -> LaneSpan:  # fmt: skip
        return LaneSpan(
            number=numbered(), request_id=ended.request_id, tenant=ended.tenant, worker=worker, engine=engine,
            outcome=outcome, queued_s=queued_s, granted_s=begun_s, first_s=first_s, ended_s=done_s, leg=leg,
            partner=partner,
        )  # fmt: skip

    legs, waits_s = ended.legs, granted_s - waited_s
    if legs is None:
        first_s = min(granted_s + ended.prefill_s, ended_s)
        return [span(ended.engine, waits_s, granted_s, first_s, ended_s)]
    prefill, answers = legs.prefill_engine, ended.engine
    if legs.computed_s is None:
        return [span(prefill, waits_s, granted_s, granted_s, ended_s, leg=SpanLeg.PROMPT, partner=answers)]
    computed_s = min(granted_s + legs.computed_s, ended_s)
    first_s = computed_s if legs.first_s is None else min(max(computed_s, granted_s + legs.first_s), ended_s)
    return [
        span(prefill, waits_s, granted_s, computed_s, computed_s, Outcome.FINISHED, SpanLeg.PROMPT, answers),
        span(answers, computed_s, computed_s, first_s, ended_s, leg=SpanLeg.ANSWER, partner=prefill),
    ]
