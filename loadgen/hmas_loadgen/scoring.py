"""From records to the shared metrics: a table over the run, and per tenant, task type and time window.

TTFT and TTLT count from the instant the request was really sent: the generator's lag is its own fault, reported
beside the score, and a run in which it matters is invalid. Warm-up requests are left out. The duration that rates
refer to is the offered window without the warm-up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hmas.contracts.outcome import Outcome
from hmas.laws.scoring import Score, Settlement, quantile, score, tpot_s
from hmas_loadgen.record import RequestRecord


def settlement(record: RequestRecord, model: str) -> Settlement:
    """One record as the scorer sees it. TPOT of a finished request only; `offered_s` is the scheduled instant."""
    first, last = record.first_token_s, record.last_token_s
    finished = record.outcome is Outcome.FINISHED and first is not None and last is not None
    return Settlement(
        request_id=record.request_id,
        tenant=record.tenant,
        task=record.task,
        model=model,
        outcome=record.outcome if finished or record.outcome is not Outcome.FINISHED else Outcome.ENGINE_ERROR,
        slo=record.slo,
        prompt_tokens=record.prompt_tokens,
        output_tokens=record.output_tokens,
        ttft_s=first - record.sent_s if first is not None else None,
        tpot_s=tpot_s(first, last, record.output_tokens) if first is not None and last is not None else None,
        last_token_s=last - record.sent_s if last is not None else None,
        offered_s=record.scheduled_s,
    )


def settlements(records: Iterable[RequestRecord], model: str, warmup_s: float = 0.0) -> list[Settlement]:
    """Scored requests in order of their schedule."""
    kept = sorted((r for r in records if r.scheduled_s >= warmup_s), key=lambda r: r.index)
    return [settlement(record, model) for record in kept]


def scores_by(rows: Sequence[Settlement], key: Callable[[Settlement], str], duration_s: float) -> dict[str, Score]:
    """One score per group, by name of the group."""
    groups: defaultdict[str, list[Settlement]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return {name: score(groups[name], duration_s) for name in sorted(groups)}


def errors(records: Iterable[RequestRecord]) -> Mapping[str, int]:
    """How many requests ended in which error, the most frequent first."""
    counts = Counter(record.error or str(record.outcome) for record in records if record.error)
    return dict(counts.most_common())


def lag_quantiles(records: Iterable[RequestRecord]) -> tuple[float, float]:
    """Median and 99 % quantile of the generator's own lateness, seconds; 0 for an empty run."""
    lags = sorted(record.lag_s for record in records)
    return (quantile(lags, 0.5), quantile(lags, 0.99)) if lags else (0.0, 0.0)
