"""`hmas why` begins with one sentence: the verdict, the largest part and its cause, for requests late in many ways."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.engine_kind import UNKNOWN_KIND
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Annotation, Cost, KindCost, Slo
from hmas.gateway.exchange import Exchange, RunTrace
from hmas.gateway.one_sentence import sentence_of
from tests.builders.requests import client_request, grant, model_tags, timeline

STREAMED, WHOLE = Slo(1.0, 0.1), Slo(1.0, 0.1, 5.0, whole=True)


def ended(
    slo: Slo, started_s: float, first_s: float | None, ended_s: float, *, tokens: int = 11, queued: int = 0,
    waited: dict[str, Any] | None = None, cost: Cost | None = None, **changes: Any,
) -> Exchange:  # fmt: skip
    """A request that came at 0 s; its answer was predicted to have 50 tokens, or at most 100."""
    made: Exchange = object.__new__(Exchange)
    made.request = client_request("r", slo=slo, prompt_tokens=9000)
    made.annotation = Annotation(model_tags(), (KindCost(UNKNOWN_KIND, cost),)) if cost is not None else None
    granted = replace(grant(), timeline=timeline(queue_length=queued, **(waited or {})))
    made.runs = [RunTrace(worker="w", engine="e1", grant=granted, started_s=started_s, ended_s=ended_s)]
    made.first_s, made.settled_s, made.output_tokens = first_s, ended_s, tokens
    made.outcome, made.message, made.job_budget_s = Outcome.FINISHED, "", None
    for name, value in changes.items():
        setattr(made, name, value)
    return made


LOST = [
    RunTrace(worker="w", engine="e7", grant=None, started_s=0.1, ended_s=3.0),
    RunTrace(worker="w", engine="e1", grant=None, started_s=3.1, ended_s=4.5),
]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (ended(STREAMED, 0.1, 0.5, 1.0), "It was on time."),
        (ended(STREAMED, 3.0, 3.2, 4.0, queued=9),
         "Its first token was late by 2.20 s: it waited 3.00 s for an engine, with 9 others waiting when it came."),
        (ended(STREAMED, 3.0, 3.2, 4.0, queued=1, waited={"relegated": True, "asleep_s": 1.0}),
         "Its first token was late by 2.20 s: it waited 3.00 s for an engine, with 1 other waiting when it came, and"
         " those that could still be on time went first."),
        (ended(STREAMED, 3.0, 3.2, 4.0, waited={"asleep_s": 2.0}),
         "Its first token was late by 2.20 s: it waited 3.00 s for an engine that was asleep."),
        (ended(STREAMED, 3.0, 3.2, 4.0, waited={"memory_s": 2.0}),
         "Its first token was late by 2.20 s: it waited 3.00 s for memory of an engine."),
        (ended(STREAMED, 0.1, 2.6, 3.0, cost=Cost(2.4, 0.01)),
         "Its first token was late by 1.60 s: its prompt of 9000 tokens took 2.50 s."),
        (ended(STREAMED, 0.1, 2.6, 12.0, tokens=101),  # what came after the first token did not make that late
         "Its first token was late by 1.60 s: its prompt of 9000 tokens took 2.50 s."),
        (ended(Slo(1.0, 1.0, 3.0), 0.1, 0.5, 9.0),
         "Its last token was late by 6.00 s: its answer of 11 tokens took 8.50 s."),
        (ended(STREAMED, 0.1, 2.6, 3.0, cost=Cost(0.5, 0.01)),
         "Its first token was late by 1.60 s: e1 took 2.50 s to its first token, where 0.50 s were predicted."),
        (ended(STREAMED, 0.1, 0.5, 2.5, cost=Cost(0.5, 0.05)),
         "Its pace was late by 1.00 s: e1 took 2.00 s for 11 tokens, where 0.55 s were predicted."),
        (ended(STREAMED, 3.1, 3.2, 4.0, runs=LOST),
         "Its first token was late by 2.20 s: 2.90 s were lost with e7."),
        (ended(STREAMED, 6.1, 6.2, 7.0, runs=[LOST[0], replace(LOST[1], started_s=6.1, ended_s=7.0)]),
         "Its first token was late by 5.20 s: it waited 3.20 s for an engine."),
        (ended(WHOLE, 0.5, None, 9.0, tokens=400, cost=Cost(0.5, 0.02)),
         "Its last token was late by 4.00 s: its answer had 400 tokens, where 50 were predicted, and took 8.50 s."),
        (ended(WHOLE, 0.5, None, 9.0, tokens=50, cost=Cost(0.5, 0.02)),
         "Its last token was late by 4.00 s: e1 took 8.50 s for 50 tokens, where 1.50 s were predicted."),
        (ended(WHOLE, 0.5, None, 9.0, tokens=50),
         "Its last token was late by 4.00 s: its prompt of 9000 tokens and its answer of 50 took 8.50 s."),
        (ended(WHOLE, 0.5, None, 9.0, tokens=50, cost=Cost(6.0, 0.02)),
         "Its last token was late by 4.00 s: its prompt of 9000 tokens and its answer of 50 took 8.50 s, of which by"
         " the prediction the prompt took the larger part."),
        (ended(WHOLE, 0.5, None, 9.0, tokens=50, cost=Cost(1.0, 0.1)),
         "Its last token was late by 4.00 s: its answer of 50 tokens took 8.50 s."),
        (ended(STREAMED, 0.1, 0.5, 15.5, tokens=120, cost=Cost(0.5, 0.1)),  # a longer answer has no slower pace
         "Its pace was late by 3.10 s: its answer of 120 tokens took 15.00 s."),
        (ended(WHOLE, 6.0, None, 9.0, cost=Cost(0.5, 0.02)),
         "Its last token was late by 4.00 s: it waited 6.00 s for an engine."),
        (ended(STREAMED, 0.0, None, 0.0, outcome=Outcome.SLO_UNREACHABLE, message="too late.", runs=[]),
         "It was refused (slo_unreachable): too late."),
        (ended(STREAMED, 0.0, None, 0.0, outcome=Outcome.NO_ENGINE, runs=[]), "It got no whole answer (no_engine)"),
        (ended(STREAMED, 0.1, 0.5, 1.0, outcome=Outcome.ENGINE_ERROR, message="it broke off"),
         "It got no whole answer (engine_error on e1): it broke off"),
        (ended(STREAMED, 0.0, None, 0.0, outcome=None), ""),
        (ended(STREAMED, 3.0, 3.2, 4.0, job_budget_s=9.0), ""),
    ],
)  # fmt: skip
def test_the_sentence_names_verdict_part_and_cause(made: Exchange, told: str) -> None:
    assert sentence_of(made) == told
