"""What an answer tells its client of its own deadline, in headers or in the last comment of a stream: the SLO that
judges it and where that comes from, whether it was kept, and where the time went.

`x-hmas-slo` has fields as in `ttft_ms=1500; tpot_ms=60; from=header; on_time=false; missed=ttft; late_ms=430`. The time
per output token and the due time of a whole answer are those of `hmas.laws.scoring`.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.gateway.exchange import Exchange
from hmas.laws.scoring import tpot_s, ttlt_slo_s


def slo_in_force(exchange: Exchange) -> Slo:
    """Returns the SLO that the request is judged by, as far as the gateway's shell knows: the stated one, otherwise
    that of its task type, if its tags have come."""
    request, annotation = exchange.request, exchange.annotation
    if request.slo_stated or annotation is None:
        return request.slo
    return replace(annotation.tags.slo, whole=request.slo.whole)


def slo_told(exchanges: Sequence[Exchange], source: str) -> str:
    """Returns the SLO of an answer as the header tells it, with the outcome once all that belongs to the answer has
    ended well. `source`: where a stated SLO comes from; empty: it follows from the task type."""
    exchange = exchanges[0]
    annotation, budget_s = exchange.annotation, exchange.job_budget_s
    if not exchange.request.slo_stated:
        source = f"task; task={'unknown' if annotation is None else annotation.tags.task.value}"
    told = _bounds_told(slo_in_force(exchange), source, budget_s)
    return "; ".join([told, *_outcome(exchanges)])


@lru_cache(1024)  # it is needed for every answer, mostly with the few SLOs of tenants and task types
def _bounds_told(slo: Slo, source: str, job_budget_s: float | None) -> str:
    if slo.ttlt_s is not None and slo.whole:
        fields = [f"ttlt_ms={_ms(slo.ttlt_s)}"]
    else:
        fields = [f"ttft_ms={_ms(slo.ttft_s)}", f"tpot_ms={_ms(slo.tpot_s)}"]
        if slo.ttlt_s is not None:
            fields.append(f"ttlt_ms={_ms(slo.ttlt_s)}")
    if job_budget_s is not None:
        fields.append(f"job_ms={_ms(job_budget_s)}")
    return "; ".join([*fields, f"from={source}"])


def _outcome(exchanges: Sequence[Exchange]) -> list[str]:
    """Returns how the deadline went, of several answers to one request that of the latest; nothing while one has not
    ended well, or where a job's budget, which the gateway's agent divides, decides."""
    if any(each.outcome is not Outcome.FINISHED or each.job_budget_s is not None for each in exchanges):
        return []
    missed, exchange = max(((missed_by(each), each) for each in exchanges), key=lambda found: max(found[0].values()))
    late = {name: late_s for name, late_s in missed.items() if late_s > 0.0}
    if not late:
        return ["on_time=true"]
    slo = slo_in_force(exchange)
    due = [f"due_ms={_ms(ttlt_slo_s(slo, exchange.output_tokens))}"] if slo.whole else []
    return [*due, "on_time=false", f"missed={','.join(late)}", f"late_ms={_ms(max(late.values()))}"]


def missed_by(exchange: Exchange) -> dict[str, float]:
    """Returns by how many seconds a request that finished missed each of its SLOs, at most 0 of one that it kept. A
    pace that was missed counts as the time by which the last token came later for it."""
    slo, arrival_s, tokens = slo_in_force(exchange), exchange.request.arrival_s, exchange.output_tokens
    ended_s = exchange.runs[-1].ended_s or exchange.settled_s or arrival_s
    late = dict[str, float]()
    if not slo.whole:
        first_s = ended_s if exchange.first_s is None else exchange.first_s
        late["ttft"] = first_s - arrival_s - slo.ttft_s
        late["tpot"] = (tpot_s(first_s, ended_s, tokens) - slo.tpot_s) * max(0, tokens - 1)
    if slo.whole or slo.ttlt_s is not None:
        late["ttlt"] = ended_s - arrival_s - ttlt_slo_s(slo, tokens)
    return late


def server_timing(exchanges: Sequence[Exchange]) -> str:
    """Returns the value of the header `Server-Timing`, in milliseconds, of the answer that took longest: `queue` until
    an engine got the request, `ttft` until its first token and `decode` from there on, or `engine` for both where only
    the whole answer was seen, and `total`. What has not ended is left out; empty: no engine got the request."""
    exchange = max(exchanges, key=lambda each: each.settled_s or 0.0)
    if not exchange.runs:
        return ""
    run, arrival_s, first_s = exchange.runs[-1], exchange.request.arrival_s, exchange.first_s
    parts = [("queue", run.started_s - arrival_s)]
    if first_s is not None:
        parts.append(("ttft", first_s - arrival_s))
    if run.ended_s is not None:
        parts.append(("engine", run.ended_s - run.started_s) if first_s is None else ("decode", run.ended_s - first_s))
    if exchange.settled_s is not None:
        parts.append(("total", exchange.settled_s - arrival_s))
    return ", ".join([f"{name};dur={1000.0 * seconds:.1f}" for name, seconds in parts])


def _ms(seconds: float) -> str:
    return f"{round(1000.0 * seconds, 1):g}" if seconds < 900.0 else f"{1000.0 * seconds:.0f}"
