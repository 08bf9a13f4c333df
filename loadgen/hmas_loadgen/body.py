"""Builds the HTTP request of one trace row. It holds the true output length as `max_tokens` with `Lengths.DIRECT`,
as `hmas_replay`, which the mesh hides from its schedulers, with `REPLAY_FIELD`, and not at all with `NATURAL`."""

from collections.abc import Mapping
from typing import assert_never

import orjson

from hmas.contracts.request import Slo
from hmas_loadgen.plan import Api, Lengths, LoadPlan
from hmas_loadgen.traces.row import TraceCall, TraceRow

PATHS: Mapping[Api, str] = {Api.CHAT: "/v1/chat/completions", Api.COMPLETIONS: "/v1/completions"}


class RequestBuilder:
    """Builds the bodies and headers of the requests of one plan."""

    def __init__(self, plan: LoadPlan) -> None:
        self._target = plan.target
        self._max_tokens = plan.generous_max_tokens

    @property
    def path(self) -> str:
        return PATHS[self._target.api]

    def body(self, row: TraceRow, prompt: str) -> bytes:
        """Returns the JSON body of the row's request with `prompt` as its text, or the chat of a job's call. Fields
        of `Target.body` override all others."""
        body: dict[str, object] = {"model": self._target.model}
        match self._target.api:
            case Api.CHAT:
                chat = [{"role": "user", "content": prompt}] if row.call is None else list(row.call.messages)
                body["messages"] = chat
            case Api.COMPLETIONS:
                body["prompt"] = prompt
            case _:
                assert_never(self._target.api)
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        body |= self._length_fields(row.output_tokens)
        return orjson.dumps(body | dict(self._target.body))

    def _length_fields(self, output_tokens: int) -> dict[str, object]:
        match self._target.lengths:
            case Lengths.DIRECT:
                return {"max_tokens": output_tokens, "min_tokens": output_tokens, "ignore_eos": True}
            case Lengths.REPLAY_FIELD:
                return {"max_tokens": self._max_tokens, "hmas_replay": {"output_tokens": output_tokens}}
            case Lengths.NATURAL:
                return {"max_tokens": self._max_tokens}
            case _:
                assert_never(self._target.lengths)

    def headers(self, row: TraceRow, request_id: str) -> dict[str, str]:
        """Returns the headers: request id, the tenant's API key and, with `Target.send_slo`, the row's SLO in ms.
        Headers of the target override all others."""
        headers = {"Content-Type": "application/json", "X-Request-Id": request_id}
        key = self._target.tenant_keys.get(row.tenant or "", self._target.api_key)
        if key:
            headers["Authorization"] = f"Bearer {key}"
        if self._target.send_slo and row.slo is not None:
            headers |= _slo_headers(row.slo)
        if row.call is not None:
            headers |= self._job_headers(row.call, request_id)
        return headers | dict(self._target.headers)

    def _job_headers(self, call: TraceCall, request_id: str) -> dict[str, str]:
        """The run's part of the request's id keeps jobs of several runs apart."""
        headers = {}
        if self._target.name_jobs:
            headers["x-hmas-job"] = f"{request_id.rpartition('-')[0]}-{call.job}"
        if self._target.send_slo and call.budget_s is not None:
            headers["x-slo-job-ms"] = f"{call.budget_s * 1000:g}"
        return headers


def _slo_headers(slo: Slo) -> dict[str, str]:
    headers = {"x-slo-ttft-ms": f"{slo.ttft_s * 1000:g}", "x-slo-tpot-ms": f"{slo.tpot_s * 1000:g}"}
    if slo.ttlt_s is not None:
        headers["x-slo-ttlt-ms"] = f"{slo.ttlt_s * 1000:g}"
    return headers
