"""The journal: the requests in flight and those that ended last, reported as JSON for `hmas why`."""

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import orjson

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Grant
from hmas.contracts.gateway import RouteChosen
from hmas.contracts.request import Annotation
from hmas.gateway.exchange import Exchange, RunTrace
from hmas.gateway.legs_told import legs_told
from hmas.gateway.one_sentence import sentence_of
from hmas.gateway.witness import Witness
from hmas.laws.kind_costs import cost_among

GroupOf = Callable[[str, EngineKind], str]  # of a pool and a kind of engine: the name of the instance type; empty: none


class RequestJournal(Witness):
    """The requests that have not ended, and the last `capacity` that did; found by the mesh's id or by the client's
    `X-Request-Id`. `clock` is that of the requests' instants, `wall_clock` returns Unix seconds."""

    def __init__(
        self,
        gateway: str,
        capacity: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._gateway, self._capacity = gateway, capacity
        self._clock, self._wall_clock = clock, wall_clock
        self._live: dict[str, Exchange] = {}
        self._ended: OrderedDict[str, Exchange] = OrderedDict()
        self._ids: dict[str, str] = {}  # the client's id -> the last ended request that carried it

    def opened(self, exchange: Exchange) -> None:
        self._live[exchange.request.id] = exchange

    def noted(self, worker: str, grant: Grant) -> None:
        exchange = self._live.get(grant.request_id) or self._ended.get(grant.request_id)
        if exchange is not None:
            exchange.noted = worker, grant, self._clock()

    def settled(self, exchange: Exchange) -> None:
        self._live.pop(exchange.request.id, None)
        self._ended[exchange.request.id] = exchange
        self._ids[exchange.client_id] = exchange.request.id
        while len(self._ended) > self._capacity:
            request_id, oldest = self._ended.popitem(last=False)
            if self._ids.get(oldest.client_id) == request_id:
                del self._ids[oldest.client_id]

    def stages(self, job: str) -> list[dict[str, Any]]:
        """Returns the stages of a job that are known, as plain data, for `hmas why`."""
        known = (*self._ended.values(), *self._live.values())
        now_s, unix_s = self._clock(), self._wall_clock()
        return [
            stage_told(each, self._gateway, unix_s - (now_s - each.request.arrival_s))
            for each in known
            if each.stage is not None and each.stage.job == job
        ]

    def timeline(self, request_id: str, group_of: GroupOf | None = None) -> bytes | None:
        """Returns what happened to a request, as JSON, for `hmas why`; None if it is unknown. `request_id` is the
        mesh's id or the client's `X-Request-Id`."""
        exchange = self.find(request_id)
        return None if exchange is None else timeline_json(exchange, self._gateway, group_of)

    def find(self, request_id: str) -> Exchange | None:
        found = self._live.get(request_id) or self._ended.get(request_id)
        found = found or self._ended.get(self._ids.get(request_id, ""))
        return found or next((each for each in self._live.values() if each.client_id == request_id), None)


def timeline_json(exchange: Exchange, gateway: str, group_of: GroupOf | None = None) -> bytes:
    """Returns what happened to one request, as JSON. Times are in seconds since its arrival at the gateway; null: not
    happened. `group_of` names the groups of the plan in force to which its engines belong."""
    timeline = {"why": sentence_of(exchange), **_request(exchange, gateway)}
    if exchange.stage is not None:
        timeline["job"] = {**asdict(exchange.stage), "linked": exchange.stage.linked.value}
    if exchange.annotation is not None:
        timeline |= _annotation(exchange.annotation)
    if exchange.route is not None:
        timeline["route"] = _route(exchange.route)
    timeline["attempts"] = [
        {"attempt": each.number, "worker": each.worker, "sent_s": _since(exchange, each.sent_s)}
        for each in exchange.attempts
    ]
    timeline["runs"] = [_run(exchange, run, group_of) for run in exchange.runs]
    if exchange.noted is not None:
        worker, grant, at_s = exchange.noted
        timeline["would_be_grant"] = {
            "worker": worker,
            "granted_s": _since(exchange, at_s),
            "urgency": grant.urgency,
            **asdict(grant.timeline),
        }
    return orjson.dumps(timeline)


def _request(exchange: Exchange, gateway: str) -> dict[str, Any]:
    request = exchange.request
    return {
        "request_id": request.id,
        "client_request_id": exchange.client_id,
        "gateway": gateway,
        "model": request.model,
        "pool": exchange.pool,
        "tenant": request.tenant,
        "flow": request.flow,
        "stream": request.stream,
        "prompt_tokens": request.prompt_tokens,
        "max_tokens": request.max_tokens,
        "priority": request.priority,
        "importance": request.importance,
        "outcome": exchange.outcome.value if exchange.outcome else "in flight",
        "message": exchange.message,
        **({"retry_after_s": exchange.error.retry_after_s} if exchange.error is not None else {}),
        "output_tokens": exchange.output_tokens,
        "promised_cached_tokens": _promised(exchange),
        "cached_tokens": exchange.cached_tokens,
        "ttft_s": _since(exchange, exchange.first_s),
        "total_s": _since(exchange, exchange.settled_s),
        "slo": {**asdict(request.slo), "stated": request.slo_stated},
    }


def _annotation(annotation: Annotation) -> dict[str, Any]:
    """Returns the tags and the costs that were predicted, those by kind only where there are several."""
    tags, cost = annotation.tags, cost_among(annotation.costs, ())
    tokens = tags.output_tokens
    fields: dict[str, Any] = {
        "tags": {
            "task": tags.task.value,
            "confidence": tags.confidence,
            "predicted_output_tokens": tokens,
            "predicted_output_tokens_p90": tags.output_tokens_p90,
            "ttft_slo_s": tags.slo.ttft_s,
            "tpot_slo_s": tags.slo.tpot_s,
            "source": tags.source.value,
            "predictor": tags.version,
        },
        "predicted_cost": {**asdict(cost), "total_s": cost.total_s(tokens)},
    }
    if len(annotation.costs) > 1:
        fields["predicted_costs"] = [
            {**asdict(each.kind), **asdict(each.cost), "total_s": each.cost.total_s(tokens)}
            for each in annotation.costs
        ]
    return fields


def _route(route: RouteChosen) -> list[dict[str, Any]]:
    columns = zip(route.workers, route.cached_tokens, route.wait_s, route.prefill_s, route.load_s, strict=True)
    return [
        {"worker": worker, "chosen": worker == route.worker, "cached_tokens": tokens, "backlog_s": wait_s,
         "prefill_s": prefill_s, "load_s": load_s, "total_s": wait_s + prefill_s + load_s}
        for worker, tokens, wait_s, prefill_s, load_s in columns
    ]  # fmt: skip


def stage_told(exchange: Exchange, gateway: str, began_unix_s: float) -> dict[str, Any]:
    """Returns a request as one stage of its job. `promised`: tokens of its prompt that its engine was taken to have
    cached; `cached`: those that the engine reports to have had."""
    stage = exchange.stage
    return {
        "stage": None if stage is None else stage.index,
        "request": exchange.request.id,
        "gateway": gateway,
        "linked": None if stage is None else stage.linked.value,
        "began_unix_s": began_unix_s,
        "ttft_s": _since(exchange, exchange.first_s),
        "total_s": _since(exchange, exchange.settled_s),
        "prompt": exchange.request.prompt_tokens,
        "promised": _promised(exchange),
        "cached": exchange.cached_tokens,
        "output": exchange.output_tokens,
        "engine": exchange.runs[-1].engine if exchange.runs else None,
        "outcome": exchange.outcome.value if exchange.outcome else "in flight",
    }


def _promised(exchange: Exchange) -> int | None:
    grant = exchange.runs[-1].grant if exchange.runs else None
    return None if grant is None else grant.timeline.promised_tokens


def _run(exchange: Exchange, run: RunTrace, group_of: GroupOf | None) -> dict[str, Any]:
    grant = run.grant
    group = group_of(exchange.pool, run.kind) if group_of is not None else ""
    return {
        "worker": run.worker,
        "engine": run.engine,
        "hardware": run.kind.hardware or None,
        **({"group": group} if group else {}),
        "bypass": run.bypass,
        "observed": run.observed,
        "grant": None if grant is None else grant.grant,
        "started_s": _since(exchange, run.started_s),
        **legs_told(exchange, run),
        "first_token_s": _since(exchange, run.first_s),
        "ended_s": _since(exchange, run.ended_s),
        "outcome": run.outcome,
        "timeline": None if grant is None else asdict(grant.timeline),
        **({} if grant is None or grant.choice is None else {"choice": asdict(grant.choice)}),
    }


def _since(exchange: Exchange, instant_s: float | None) -> float | None:
    return None if instant_s is None else round(instant_s - exchange.request.arrival_s, 6)
