"""Turns the records of a load run into settlements, which `hmas.laws.scoring` scores, over the run or per group.

TTFT and TTLT count from the instant at which the request was really sent. The generator's lag is reported beside the
score, and a run with too much of it is invalid. Requests of the warm-up are left out, and rates per second refer to the
offered window without the warm-up.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.laws.scoring import Score, Settlement, quantile, score, tpot_s
from hmas_loadgen.record import RequestRecord
from hmas_loadgen.worth import Worth


def settlement(record: RequestRecord, model: str) -> Settlement:
    """Returns the settlement of one record, with times in seconds since the request was sent. `offered_s` is the
    scheduled instant. A record that finished without any output token counts as an engine error."""
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
    """Returns the settlements of all requests scheduled after the first `warmup_s` seconds, in the order of the
    schedule."""
    kept = sorted((r for r in records if r.scheduled_s >= warmup_s), key=lambda r: r.index)
    return [settlement(record, model) for record in kept]


def weighted_score(rows: Sequence[Settlement], duration_s: float, worth: Worth) -> Score:
    """Returns the score of settlements whose requests are worth what `worth` says: in the utility, and by tenant in
    Jain's index. `duration_s` is what rates per second refer to."""
    classes = {TaskType(name): weight for name, weight in worth.classes.items()}
    return score(rows, duration_s, worth.tenants, classes)


def scores_by(
    rows: Sequence[Settlement], key: Callable[[Settlement], str], duration_s: float, worth: Worth
) -> dict[str, Score]:
    """Returns one weighted score for each group of settlements; `key` gives the name of the group that a settlement
    belongs to."""
    groups: defaultdict[str, list[Settlement]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return {name: weighted_score(groups[name], duration_s, worth) for name in sorted(groups)}


def errors(records: Iterable[RequestRecord]) -> Mapping[str, int]:
    """Counts failed requests by kind of error, most frequent first."""
    counts = Counter(record.error or str(record.outcome) for record in records if record.error)
    return dict(counts.most_common())


def lag_quantiles(records: Iterable[RequestRecord]) -> tuple[float, float]:
    """Returns median and 99 % quantile of the load generator's lag, seconds; both 0 if there are no records."""
    lags = sorted(record.lag_s for record in records)
    return (quantile(lags, 0.5), quantile(lags, 0.99)) if lags else (0.0, 0.0)
