"""How a request over HTTP becomes requests for the agent, whichever server it came through."""

from functools import partial

from hmas.contracts.gateway import NO_VOLUME, Volume
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.answer_report import server_timing, slo_told
from hmas.gateway.engines.proxied import Proxy
from hmas.gateway.errors import Headers, InvalidRequest
from hmas.gateway.exchange import Exchange
from hmas.gateway.http.bodies import BodyDesk
from hmas.gateway.openai.body import Call, CallRules, Calls, parse_calls
from hmas.gateway.openai.tiers import ServiceTier
from hmas.gateway.shell import GatewayShell
from hmas.gateway.tenants.header_names import unknown_names, warning_of
from hmas.gateway.tenants.store import Caller, TenantStore
from hmas.gateway.tenants.terms import (
    KNOWN_HEADERS,
    OutcomePlace,
    Tenant,
    Terms,
    client_request_id,
    declared_job,
    outcome_place,
    read_headers,
    takes_late,
    terms_of,
    traceparent,
)
from hmas.runtime import ids


class Arrival:
    """One request over HTTP. `exchanges` are those that were opened for it: one, or one for each answer that was asked
    for. `clamped`: stated SLOs that the tenant's bounds changed. `slo_from`: where its SLO comes from (`Terms`).
    `tier`: the service tier that it names; None: none. `outcome_place`: where else than in the head its client wants
    the outcome; None: nowhere."""

    def __init__(self, path: str, headers: Headers) -> None:
        self.path = path
        self.headers = read_headers(headers)
        # The mesh makes its own id for each request, because two clients may send the same `X-Request-Id`.
        self.request_id = ids.request_id()
        self.client_id = client_request_id(self.headers) or self.request_id
        self.exchanges: list[Exchange] = []
        self.clamped = self.slo_from = ""
        self.tier: ServiceTier | None = None
        self._unknown = unknown_names(headers, KNOWN_HEADERS)
        self.outcome_place, self._unknown_place = outcome_place(self.headers)

    def own_headers(self) -> Headers:
        """Returns the headers that every answer has beside the engine's own."""
        headers = [(b"x-request-id", self.client_id.encode())]
        if self.exchanges:
            headers.append((b"x-hmas-slo", slo_told(self.exchanges, self.slo_from).encode()))
            timing = server_timing(self.exchanges)
            if timing:
                headers.append((b"server-timing", timing.encode()))
        if self._unknown or self._unknown_place:
            warnings = filter(None, (warning_of(self._unknown, KNOWN_HEADERS), self._unknown_place))
            headers.append((b"x-hmas-warning", "; ".join(warnings).encode()))
        mode = next((exchange.mode for exchange in self.exchanges if exchange.mode), "")
        if mode:  # the gateway placed the request itself
            headers.append((b"x-hmas-mode", mode.encode()))
        if self.clamped:
            headers.append((b"x-hmas-slo-clamped", self.clamped.encode()))
        if self.tier is not None and self.tier is not ServiceTier.DEFAULT:
            headers.append((b"x-hmas-service-tier", self.tier.value.encode()))
        return headers


class Reception:
    """Checks requests and hands them to the shell. `replay_field`: whether the body field `hmas_replay` is accepted;
    `follow_prompts`: whether the beginnings of prompts are recognised."""

    def __init__(
        self,
        shell: GatewayShell,
        tenants: TenantStore,
        directory: ModelDirectory,
        *,
        replay_field: bool,
        follow_prompts: bool = True,
    ) -> None:
        self._shell, self._tenants, self._directory = shell, tenants, directory
        self._replay_field, self._follow_prompts = replay_field, follow_prompts

    def authenticate(self, arrival: Arrival) -> Caller:
        """Raises InvalidRequest (401) if the request has no valid API key."""
        return self._tenants.authenticate(arrival.headers)

    async def open(
        self,
        arrival: Arrival,
        caller: Caller,
        data: bytes | bytearray,
        arrival_s: float,
        desk: BodyDesk,
        proxy: Proxy | None = None,
    ) -> Calls:
        """Opens the exchanges of a request with the body `data`, as far as none is refused. `proxy`: what carries the
        request out in the gateway's place; it is then one request, however many answers it asks for. Raises
        InvalidRequest."""
        tenant = caller.tenant
        rules = CallRules(
            tenant=tenant.name,
            cache_salt=self._tenants.cache_salt(tenant),
            replay_enabled=self._replay_field,
            allowed_fields=tenant.allowed_body_fields,
            relayed=proxy is None,
            follow_prompts=self._follow_prompts,
            recognised=not takes_late(arrival.headers, tenant),
            usage=arrival.outcome_place is OutcomePlace.USAGE,
        )
        calls = await desk.parsed(tenant.name, len(data), partial(parse_calls, arrival.path, data, rules))
        call = calls.prompts[0]
        self._check_model(call, tenant)
        terms = terms_of(
            arrival.headers, tenant, call.priority, stream=call.stream, tier=call.tier or ServiceTier.DEFAULT
        )
        arrival.clamped, arrival.slo_from, arrival.tier = terms.clamped, terms.slo_from, call.tier
        trace, job = traceparent(arrival.headers), declared_job(arrival.headers)
        siblings = self._siblings(calls)
        for each in calls.each():
            admitted = bool(arrival.exchanges)  # the limits were asked for all with the first
            request_id = ids.request_id() if admitted else arrival.request_id
            request = request_of(
                each, request_id, tenant, terms, arrival_s, self._shell.relay.prompt_tokens(each), relayed=proxy is None
            )
            exchange = self._shell.open(
                each, request, arrival.client_id, trace, caller.key, job, terms.job_budget_s, proxy,
                NO_VOLUME if admitted else siblings, admitted=admitted,
            )  # fmt: skip
            arrival.exchanges.append(exchange)
            if exchange.error is not None:  # it was refused, and with it the other answers
                break
        return calls

    def _siblings(self, calls: Calls) -> Volume:
        """Returns what all calls but the first ask for."""
        if len(calls) == 1:
            return NO_VOLUME
        tokens = [self._shell.relay.prompt_tokens(call) for call in calls.prompts]
        first = len(calls.prompts[0].rest) + len(calls.shared)
        return Volume(len(calls) - 1, calls.answers * sum(tokens) - tokens[0], calls.size - first)

    def _check_model(self, call: Call, tenant: Tenant) -> None:
        allowed = tenant.models
        if allowed is not None and call.model not in allowed and self._directory.resolve(call.model) not in allowed:
            message = f"tenant `{tenant.name}` may not use the model `{call.model}`: GET /v1/models lists those it may"
            raise InvalidRequest(message, "model", Outcome.FORBIDDEN)
        served = self._directory.paths(call.model)
        if served and call.form.path not in served:
            message = f"the engines of the model `{call.model}` do not serve {call.form.path}, but {', '.join(served)}"
            raise InvalidRequest(message, outcome=Outcome.UNKNOWN_PATH)


def request_of(
    call: Call,
    request_id: str,
    tenant: Tenant,
    terms: Terms,
    now_s: float,
    prompt_tokens: int | None = None,
    *,
    relayed: bool = True,
) -> Request:
    """Returns the request for the gateway agent; its model is the name or alias that the client sent.

    `now_s`: the arrival on this host's monotonic clock. `prompt_tokens`: those of the prompt, if more is known of them
    than the estimate. An answer that is not `relayed` by the gateway is to the mesh one that is not streamed: nothing
    of it is seen before its end.
    """
    return Request(
        id=request_id,
        model=call.model,
        tenant=tenant.name,
        flow=terms.flow,
        prompt_tokens=call.prompt_tokens if prompt_tokens is None else prompt_tokens,
        max_tokens=call.max_tokens,
        stream=call.stream and relayed,
        slo=terms.slo,
        slo_stated=terms.slo_stated,
        priority=terms.priority,
        weight=tenant.weight,
        importance=terms.importance,
        arrival_s=now_s,
        relegate=terms.relegate,
        prefix=call.chain,
    )
