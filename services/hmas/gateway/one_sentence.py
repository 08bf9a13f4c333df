"""Why a request was late, in one sentence: how its deadline went, which part of its time was the largest, and the cause
of that part as far as the gateway knows it."""

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost
from hmas.gateway.answer_report import missed_by
from hmas.gateway.exchange import Exchange
from hmas.laws.kind_costs import cost_on

SLOWER = 1.5  # times the predicted time, from which on a part is put down to the engine
JUDGED = {"ttft": "first token", "tpot": "pace", "ttlt": "last token"}


def sentence_of(exchange: Exchange) -> str:
    """Returns the sentence; empty while the request has not ended, and for one of a job with a budget, which the agent
    divides among its requests."""
    if exchange.outcome is None:
        return ""
    if exchange.outcome is not Outcome.FINISHED or not exchange.runs:
        said = f": {exchange.message}" if exchange.message else ""
        return f"It got no whole answer ({exchange.outcome.value}){said}"
    if exchange.job_budget_s is not None:
        return ""
    late = {name: late_s for name, late_s in missed_by(exchange).items() if late_s > 0.0}
    if not late:
        return "It was on time."
    worst = max(late, key=lambda name: late[name])
    parts = _parts(exchange, worst)
    largest = max(parts, key=lambda name: parts[name])
    return f"Its {JUDGED[worst]} was late by {late[worst]:.2f} s: {_cause(exchange, largest, parts[largest])}."


def _parts(exchange: Exchange, judged: str) -> dict[str, float]:
    """Returns the parts, in s, of the time that the SLO bounds."""
    first_run, run, arrival_s = exchange.runs[0], exchange.runs[-1], exchange.request.arrival_s
    ended_s = run.ended_s or exchange.settled_s or run.started_s
    first_s = exchange.first_s
    parts = {"queue": first_run.started_s - arrival_s, "lost": run.started_s - first_run.started_s}
    if first_s is None:
        return {**parts, "engine": ended_s - run.started_s}
    decode = {"decode": ended_s - first_s}
    if judged == "tpot":
        return decode
    parts["prefill"] = first_s - run.started_s
    return parts if judged == "ttft" else parts | decode


def _cause(exchange: Exchange, part: str, seconds: float) -> str:
    run, tokens, cost = exchange.runs[-1], exchange.output_tokens, _predicted(exchange)
    took = f"{seconds:.2f} s"
    if part == "queue":
        ahead = run.grant.timeline.queue_length if run.grant is not None else 0
        return f"it waited {took} for an engine" + (f", with {ahead} requests before it when it came" if ahead else "")
    if part == "lost":
        return f"{took} were lost with {', '.join(dict.fromkeys(each.engine for each in exchange.runs[:-1]))}"
    if part == "prefill":
        if cost is not None and seconds > SLOWER * cost.ttft_s:
            return f"{run.engine} took {took} to its first token, where {cost.ttft_s:.2f} s were predicted"
        return f"its prompt of {exchange.request.prompt_tokens} tokens took {took}"
    annotation = exchange.annotation
    if annotation is not None and cost is not None:
        if tokens > annotation.tags.output_tokens_p90:
            expected = annotation.tags.output_tokens
            return f"its answer had {tokens} tokens, where {expected:.0f} were predicted, and took {took}"
        if seconds > SLOWER * cost.total_s(tokens):
            return f"{run.engine} took {took} for {tokens} tokens, where {cost.total_s(tokens):.2f} s were predicted"
    return f"its answer of {tokens} tokens took {took}"


def _predicted(exchange: Exchange) -> Cost | None:
    return None if exchange.annotation is None else cost_on(exchange.annotation.costs, exchange.runs[-1].kind)
