"""Why a request was late, in one sentence: how its deadline went, which part of its time was the largest, and the cause
of that part as far as the gateway knows it."""

from hmas.contracts.execution import Timeline
from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.request import Cost
from hmas.gateway.answer_report import missed_by
from hmas.gateway.exchange import Exchange
from hmas.laws.kind_costs import cost_on

SLOWER = 1.5  # times the predicted time, from which on a part is put down to the engine
HALF = 0.5  # of what is explained, from which on one cause of it is named
JUDGED = {"ttft": "first token", "tpot": "pace", "ttlt": "last token"}


def sentence_of(exchange: Exchange) -> str:
    """Returns the sentence; empty while the request has not ended, and for one of a job with a budget, which the agent
    divides among its requests."""
    if exchange.outcome is None:
        return ""
    if exchange.outcome is not Outcome.FINISHED or not exchange.runs:
        return _not_served(exchange, exchange.outcome)
    if exchange.job_budget_s is not None:
        return ""
    late = {name: late_s for name, late_s in missed_by(exchange).items() if late_s > 0.0}
    if not late:
        return "It was on time."
    worst = max(late, key=lambda name: late[name])
    parts = _parts(exchange, worst)
    largest = max(parts, key=lambda name: parts[name])
    cause = _cause(exchange, largest, parts[largest], worst, late[worst])
    return f"Its {JUDGED[worst]} was late by {late[worst]:.2f} s: {cause}."


def _not_served(exchange: Exchange, outcome: Outcome) -> str:
    said = f": {exchange.message}" if exchange.message else ""
    if exchange.runs:
        return f"It got no whole answer ({outcome.value} on {exchange.runs[-1].engine}){said}"
    verdict = "was refused" if OUTCOME_TABLE[outcome].http_status < 499 else "got no whole answer"
    return f"It {verdict} ({outcome.value}){said}"


def _parts(exchange: Exchange, judged: str) -> dict[str, float]:
    """Returns the parts, in s, of the time that the SLO bounds. What was lost is the time on engines that gave no
    answer; between and before them the request waited."""
    *lost, run = exchange.runs
    lost_s = sum(each.ended_s - each.started_s for each in lost if each.ended_s is not None)
    ended_s, first_s = run.ended_s or exchange.settled_s or run.started_s, exchange.first_s
    parts = {"queue": run.started_s - exchange.request.arrival_s - lost_s, "lost": lost_s}
    if first_s is None:
        return {**parts, "engine": ended_s - run.started_s}
    decode = {"decode": ended_s - first_s}
    if judged == "tpot":
        return decode
    parts["prefill"] = first_s - run.started_s
    return parts if judged == "ttft" else parts | decode


def _cause(exchange: Exchange, part: str, seconds: float, judged: str, late_s: float) -> str:
    run = exchange.runs[-1]
    match part:
        case "queue":
            return _waited(run.grant.timeline if run.grant is not None else None, seconds)
        case "lost":
            engines = ", ".join(dict.fromkeys(each.engine for each in exchange.runs[:-1]))
            return f"{seconds:.2f} s were lost with {engines}"
        case "prefill":
            return _computed_slowly(exchange, seconds)
        case _:
            return _answered_slowly(exchange, seconds, judged, late_s)


def _waited(timeline: Timeline | None, seconds: float) -> str:
    if timeline is None:
        return f"it waited {seconds:.2f} s for an engine"
    what = "an engine"
    if timeline.asleep_s > HALF * seconds:
        what = "an engine that was asleep"
    elif timeline.memory_s > HALF * seconds:
        what = "memory of an engine"
    waited, ahead = f"it waited {seconds:.2f} s for {what}", timeline.queue_length
    if ahead:
        waited += f", with {ahead} other{'s' if ahead > 1 else ''} waiting when it came"
    return waited + (", and those that could still be on time went first" if timeline.relegated else "")


def _computed_slowly(exchange: Exchange, seconds: float) -> str:
    """Returns why the prompt took so long."""
    cost, run = _predicted(exchange), exchange.runs[-1]
    if cost is not None and seconds > SLOWER * cost.ttft_s:
        engines = f"{run.prefill} and {run.engine}" if run.prefill else run.engine
        return f"{engines} took {seconds:.2f} s to its first token, where {cost.ttft_s:.2f} s were predicted"
    return f"its prompt of {exchange.request.prompt_tokens} tokens took {seconds:.2f} s"


def _answered_slowly(exchange: Exchange, seconds: float, judged: str, late_s: float) -> str:
    """Returns why the answer, or prompt and answer of one that is not streamed, took so long: because it was longer
    than predicted, if at the predicted pace that alone explains half of the delay and more than the engine does, or
    because the engine was slow. A pace does not depend on the length."""
    tokens, prompt_tokens, cost = exchange.output_tokens, exchange.request.prompt_tokens, _predicted(exchange)
    took, whole = f"took {seconds:.2f} s", exchange.first_s is None
    both = f"its prompt of {prompt_tokens} tokens and its answer of {tokens} {took}"
    if cost is None or exchange.annotation is None:
        return both if whole else f"its answer of {tokens} tokens {took}"
    expected = exchange.annotation.tags.output_tokens
    prompt_s, answer_s = cost.ttft_s if whole else 0.0, cost.tpot_s * tokens
    longer_s, slower_s = cost.tpot_s * (tokens - expected), seconds - prompt_s - answer_s
    if judged != "tpot" and longer_s >= HALF * late_s and longer_s >= slower_s:
        return f"its answer had {tokens} tokens, where {expected:.0f} were predicted, and {took}"
    if seconds > SLOWER * (prompt_s + answer_s):
        told = f"{exchange.runs[-1].engine} {took} for {tokens} tokens"
        return f"{told}, where {prompt_s + answer_s:.2f} s were predicted"
    if prompt_s > answer_s:
        return f"{both}, of which by the prediction the prompt took the larger part"
    return f"its answer of {tokens} tokens {took}"


def _predicted(exchange: Exchange) -> Cost | None:
    return None if exchange.annotation is None else cost_on(exchange.annotation.costs, exchange.runs[-1].kind)
