"""The journal: the requests that ended last, kept in a bounded ring and reported as JSON for `hmas why`."""

from collections import OrderedDict
from dataclasses import asdict
from typing import Any

import orjson

from hmas.gateway.exchange import Exchange, RunTrace


class RequestJournal:
    """The last `capacity` requests that ended; found by the mesh's id or by the client's `X-Request-Id`."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._ended: OrderedDict[str, Exchange] = OrderedDict()
        self._ids: dict[str, str] = {}  # the client's id -> the last request that carried it

    def keep(self, exchange: Exchange) -> None:
        self._ended[exchange.request.id] = exchange
        self._ids[exchange.client_id] = exchange.request.id
        while len(self._ended) > self._capacity:
            request_id, oldest = self._ended.popitem(last=False)
            if self._ids.get(oldest.client_id) == request_id:
                del self._ids[oldest.client_id]

    def stages(self, job: str) -> list[Exchange]:
        """Returns the kept requests of a job."""
        return [each for each in self._ended.values() if each.stage is not None and each.stage.job == job]

    def find(self, request_id: str) -> Exchange | None:
        return self._ended.get(request_id) or self._ended.get(self._ids.get(request_id, ""))


def timeline_json(exchange: Exchange, gateway: str) -> bytes:
    """Returns what happened to one request, as JSON. Times are in seconds since its arrival at the gateway; null: not
    happened."""
    request, annotation = exchange.request, exchange.annotation
    told: dict[str, Any] = {
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
        "output_tokens": exchange.output_tokens,
        "promised_cached_tokens": _promised(exchange),
        "cached_tokens": exchange.cached_tokens,
        "ttft_s": _since(exchange, exchange.first_s),
        "total_s": _since(exchange, exchange.settled_s),
        "slo": {**asdict(request.slo), "stated": request.slo_stated},
    }
    if exchange.stage is not None:
        told["job"] = {**asdict(exchange.stage), "linked": exchange.stage.linked.value}
    if annotation is not None:
        tags = annotation.tags
        told["tags"] = {
            "task": tags.task.value,
            "confidence": tags.confidence,
            "predicted_output_tokens": tags.output_tokens,
            "predicted_output_tokens_p90": tags.output_tokens_p90,
            "ttft_slo_s": tags.slo.ttft_s,
            "tpot_slo_s": tags.slo.tpot_s,
            "source": tags.source.value,
            "predictor": tags.version,
        }
        told["predicted_cost"] = {**asdict(annotation.cost), "total_s": annotation.total_s}
    if exchange.route is not None:
        route = exchange.route
        columns = zip(route.workers, route.cached_tokens, route.wait_s, route.prefill_s, route.load_s, strict=True)
        told["route"] = [
            {"worker": worker, "chosen": worker == route.worker, "cached_tokens": tokens, "wait_s": wait_s,
             "prefill_s": prefill_s, "load_s": load_s, "total_s": wait_s + prefill_s + load_s}
            for worker, tokens, wait_s, prefill_s, load_s in columns
        ]  # fmt: skip
    told["attempts"] = [
        {"attempt": each.number, "worker": each.worker, "sent_s": _since(exchange, each.sent_s)}
        for each in exchange.attempts
    ]
    told["runs"] = [_run(exchange, run) for run in exchange.runs]
    if exchange.noted is not None:
        worker, grant, at_s = exchange.noted
        told["would_be_grant"] = {
            "worker": worker,
            "granted_s": _since(exchange, at_s),
            "urgency": grant.urgency,
            **asdict(grant.timeline),
        }
    return orjson.dumps(told)


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


def _run(exchange: Exchange, run: RunTrace) -> dict[str, Any]:
    grant = run.grant
    return {
        "worker": run.worker,
        "engine": run.engine,
        "bypass": grant is None and not run.observed,
        "observed": run.observed,
        "grant": None if grant is None else grant.grant,
        "started_s": _since(exchange, run.started_s),
        "first_token_s": _since(exchange, run.first_s),
        "ended_s": _since(exchange, run.ended_s),
        "outcome": run.outcome,
        "timeline": None if grant is None else asdict(grant.timeline),
    }


def _since(exchange: Exchange, instant_s: float | None) -> float | None:
    return None if instant_s is None else round(instant_s - exchange.request.arrival_s, 6)
