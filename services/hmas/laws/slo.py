"""The default SLOs of the task types: H-MAS Table 6, scaled by importance (Eq. 14)."""

from functools import lru_cache
from math import floor

from hmas.contracts.request import Slo, TaskType

SLO_BASE_MS: dict[TaskType, tuple[int, int]] = {
    TaskType.QA: (4000, 70),
    TaskType.DIALOGUE: (4000, 70),
    TaskType.TRANSLATION: (4500, 80),
    TaskType.EXTRACTION: (6000, 80),
    TaskType.PARAPHRASING: (6000, 90),
    TaskType.CODE_GENERATION: (6000, 90),
    TaskType.INSTRUCTION_FOLLOWING: (6000, 100),
    TaskType.SUMMARIZATION: (7000, 110),
    TaskType.LETTER_DRAFTING: (8000, 120),
    TaskType.MATH_REASONING: (10000, 130),
    TaskType.ESSAY_GENERATION: (10000, 130),
    TaskType.LONG_FORM_GENERATION: (12000, 150),
    TaskType.RESEARCH_AND_COMMUNICATION: (13000, 150),
    TaskType.UNKNOWN: (6000, 100),  # the median of the table
}
TIGHTEST_TPOT_MS = min(tpot_ms for _, tpot_ms in SLO_BASE_MS.values())
DEFAULT_IMPORTANCE = 0.75
SLO_ALPHA = 0.2


def importance_factor(importance: float) -> float:
    """Returns the factor f(imp) on a default SLO (H-MAS Eq. 14): linear, with f(0.5) = 1 + alpha and f(1.0) = 1 -
    alpha, clipped to that range."""
    factor = 1.0 + SLO_ALPHA * (3.0 - 4.0 * importance)
    return min(1.0 + SLO_ALPHA, max(1.0 - SLO_ALPHA, factor))


@lru_cache(1024)  # it is called for every request, mostly with the few importances of tenants
def default_slo(task: TaskType, importance: float = DEFAULT_IMPORTANCE, *, whole: bool = False) -> Slo:
    """Returns the default SLO of a task type, in s (H-MAS Eq. 14: the floor of base times f, in milliseconds). `whole`
    is passed on to the SLO."""
    ttft_ms, tpot_ms = SLO_BASE_MS[task]
    factor = importance_factor(importance)
    return Slo(_scaled_s(ttft_ms, factor), _scaled_s(tpot_ms, factor), None, whole)


def tightest_tpot_s(importance: float = DEFAULT_IMPORTANCE) -> float:
    """Returns the tightest default TPOT SLO of all task types, in s, for a request whose type is not known yet."""
    return _scaled_s(TIGHTEST_TPOT_MS, importance_factor(importance))


def needed_tpot_s(slo: Slo, output_tokens: float, ttft_s: float) -> float:
    """Returns the time per output token, in s, that keeps an SLO: its TPOT, or, where only the last token is judged,
    what its TTLT leaves of an answer of `output_tokens` whose first token takes `ttft_s` seconds. At most 0 if nothing
    is left."""
    if not slo.whole:
        return slo.tpot_s
    ttlt_s = slo.ttft_s + slo.tpot_s * output_tokens if slo.ttlt_s is None else slo.ttlt_s
    return (ttlt_s - ttft_s) / max(1.0, output_tokens)


def _scaled_s(base_ms: int, factor: float) -> float:
    # Without the small term, a product such as 4500 * 1.2 would be rounded down to 5399.
    return floor(base_ms * factor + 1e-6) / 1000
