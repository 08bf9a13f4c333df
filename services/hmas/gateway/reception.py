"""How a request over HTTP becomes requests for the agent, whichever server it came through."""

from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.engines.proxied import Proxy
from hmas.gateway.exchange import Exchange
from hmas.gateway.openai.body import Call, CallRules, Calls, parse_calls, request_of
from hmas.gateway.openai.errors import Headers, InvalidRequest
from hmas.gateway.shell import GatewayShell
from hmas.gateway.tenants.store import Caller, TenantStore
from hmas.gateway.tenants.terms import (
    ServiceTier,
    Tenant,
    client_request_id,
    declared_job,
    read_headers,
    terms_of,
    traceparent,
)
from hmas.runtime import ids


class Arrival:
    """One request over HTTP. `exchanges` are those that were opened for it: one, or one for each answer that was asked
    for. `clamped`: stated SLOs that the tenant's bounds changed."""

    def __init__(self, path: str, headers: Headers) -> None:
        self.path = path
        self.headers = read_headers(headers)
        # The mesh makes its own id for each request, because two clients may send the same `X-Request-Id`.
        self.request_id = ids.request_id()
        self.client_id = client_request_id(self.headers) or self.request_id
        self.exchanges: list[Exchange] = []
        self.clamped = ""
        self.tier = ServiceTier.DEFAULT

    def own_headers(self) -> Headers:
        """Returns the headers that every answer has beside the engine's own."""
        headers = [(b"x-request-id", self.client_id.encode())]
        mode = next((exchange.mode for exchange in self.exchanges if exchange.mode), "")
        if mode:  # the gateway placed the request itself
            headers.append((b"x-hmas-mode", mode.encode()))
        if self.clamped:
            headers.append((b"x-hmas-slo-clamped", self.clamped.encode()))
        if self.tier is not ServiceTier.DEFAULT:
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

    def open(
        self,
        arrival: Arrival,
        caller: Caller,
        data: bytes | bytearray,
        arrival_s: float,
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
        )
        calls = parse_calls(arrival.path, data, rules)
        call = calls.parts[0]
        self._check_model(call, tenant)
        terms = terms_of(arrival.headers, tenant, call.priority, stream=call.stream, tier=call.tier)
        arrival.clamped, arrival.tier = terms.clamped, call.tier
        trace, job = traceparent(arrival.headers), declared_job(arrival.headers)
        for each in calls.parts:
            request_id = ids.request_id() if arrival.exchanges else arrival.request_id
            request = request_of(
                each, request_id, tenant, terms, arrival_s, self._shell.prompt_tokens(each), relayed=proxy is None
            )
            exchange = self._shell.open(
                each, request, arrival.client_id, trace, caller.key, job, terms.job_budget_s, proxy
            )
            arrival.exchanges.append(exchange)
            if exchange.error is not None:  # it was refused, and with it the other answers
                break
        return calls

    def _check_model(self, call: Call, tenant: Tenant) -> None:
        allowed = tenant.models
        if allowed is not None and call.model not in allowed and self._directory.resolve(call.model) not in allowed:
            message = f"tenant `{tenant.name}` may not use the model `{call.model}`: GET /v1/models lists those it may"
            raise InvalidRequest(message, "model", Outcome.FORBIDDEN)
        served = self._directory.paths(call.model)
        if served and call.form.path not in served:
            message = f"the engines of the model `{call.model}` do not serve {call.form.path}, but {', '.join(served)}"
            raise InvalidRequest(message, outcome=Outcome.UNKNOWN_PATH)
