"""The limits of a tenant: requests and tokens per minute, requests in flight, requests waiting for a first byte."""

from dataclasses import dataclass

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.config import GatewayConfig


class TokenBucket:
    """A rate limit of `per_min` units per minute, with bursts of up to one minute's worth.

    Its level may become negative, because a request's output tokens are charged only when it ends; nothing can be taken
    until the level has risen again.
    """

    def __init__(self, per_min: float, now_s: float) -> None:
        self.per_min = per_min
        self._level = per_min
        self._filled_s = now_s

    def change_rate(self, per_min: float, now_s: float) -> None:
        self._fill(now_s)
        self.per_min = per_min
        self._level = min(self._level, per_min)

    def wait_s(self, now_s: float, amount: float) -> float:
        """Returns the seconds until `amount` may be taken: 0 if now, inf if the rate is 0. An amount above a whole
        burst may be taken once the bucket is full."""
        if self.per_min <= 0.0:
            return float("inf")
        self._fill(now_s)
        missing = min(amount, self.per_min) - self._level
        return max(0.0, missing * 60.0 / self.per_min)

    def take(self, amount: float) -> None:
        self._level -= amount

    def _fill(self, now_s: float) -> None:
        self._level = min(self.per_min, self._level + (now_s - self._filled_s) * self.per_min / 60.0)
        self._filled_s = now_s


@dataclass(slots=True, kw_only=True)
class TenantState:
    limits: TenantLimits
    requests: TokenBucket | None = None
    tokens: TokenBucket | None = None
    in_flight: int = 0
    waiting: int = 0


@dataclass(frozen=True, slots=True)
class TenantRefusal:
    """Why a tenant's request is refused. `retry_after_s` is the time until its rate allows it, in seconds; None if it
    must wait until one of the tenant's own requests moves on, which no rate can tell."""

    outcome: Outcome
    message: str
    retry_after_s: float | None


class TenantGate:
    """The limits and current use of every tenant. A tenant without configured limits is unbounded."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._states: dict[str, TenantState] = {}
        self._limits: dict[str, TenantLimits] = {}

    def change(self, now_s: float, limits: tuple[TenantLimits, ...]) -> None:
        """Replaces the limits of all tenants. Rate limits keep their levels, and requests in flight stay counted."""
        self._limits = {each.tenant: each for each in limits}
        for tenant, state in list(self._states.items()):
            if tenant not in self._limits and not state.in_flight:
                del self._states[tenant]
            else:
                self._apply(now_s, state, self._limits.get(tenant, TenantLimits(tenant=tenant)))

    def refusal(self, now_s: float, tenant: str, prompt_tokens: int) -> TenantRefusal | None:
        """Returns why the tenant may not send a request of `prompt_tokens` tokens now, or None if it may."""
        state = self._state(now_s, tenant)
        limits = state.limits
        if limits.max_in_flight is not None and state.in_flight >= limits.max_in_flight:
            message = (
                f"tenant `{tenant}` has {state.in_flight} requests in flight and may have {limits.max_in_flight} "
                "(max_in_flight): wait until one of them ends"
            )
            return TenantRefusal(Outcome.TENANT_IN_FLIGHT, message, None)
        if limits.max_queued is not None and state.waiting >= limits.max_queued:
            message = (
                f"tenant `{tenant}` has {state.waiting} requests that wait for their first byte and may have "
                f"{limits.max_queued} (max_queued): wait until one of them starts"
            )
            return TenantRefusal(Outcome.TENANT_QUEUE_FULL, message, None)
        if state.requests is not None and (wait_s := state.requests.wait_s(now_s, 1.0)) > 0.0:
            message = f"tenant `{tenant}` has used its {limits.requests_per_min:g} requests per minute: try again later"
            return TenantRefusal(Outcome.TENANT_REQUEST_RATE, message, wait_s)
        if state.tokens is not None and (wait_s := state.tokens.wait_s(now_s, prompt_tokens)) > 0.0:
            message = f"tenant `{tenant}` has used its {limits.tokens_per_min:g} tokens per minute: try again later"
            return TenantRefusal(Outcome.TENANT_TOKEN_RATE, message, wait_s)
        return None

    def accept(self, now_s: float, tenant: str, prompt_tokens: int) -> None:
        """Counts a request that was accepted. Its prompt tokens are charged now, its output tokens when it ends."""
        state = self._state(now_s, tenant)
        state.in_flight += 1
        state.waiting += 1
        if state.requests is not None:
            state.requests.take(1.0)
        if state.tokens is not None:
            state.tokens.take(prompt_tokens)

    def started(self, tenant: str) -> None:
        """Records that one of the tenant's requests got its first token and no longer counts as waiting."""
        self._states[tenant].waiting -= 1

    def ended(self, tenant: str, *, waiting: bool, tokens: int) -> None:
        """Records that one of the tenant's requests ended. `waiting`: it had no first token. `tokens`: the tokens still
        to be charged, negative if the prompt was estimated too long."""
        state = self._states[tenant]
        state.in_flight -= 1
        state.waiting -= waiting
        if state.tokens is not None:
            state.tokens.take(tokens)

    def _state(self, now_s: float, tenant: str) -> TenantState:
        state = self._states.get(tenant)
        if state is None:
            if len(self._states) >= self._config.max_idle_tenants:
                self._states = {name: s for name, s in self._states.items() if s.in_flight or name in self._limits}
            state = self._states[tenant] = TenantState(limits=TenantLimits(tenant=tenant))
            self._apply(now_s, state, self._limits.get(tenant, state.limits))
        return state

    def _apply(self, now_s: float, state: TenantState, limits: TenantLimits) -> None:
        state.limits = limits
        state.requests = _bucket(state.requests, limits.requests_per_min, now_s)
        state.tokens = _bucket(state.tokens, limits.tokens_per_min, now_s)


def _bucket(bucket: TokenBucket | None, per_min: float | None, now_s: float) -> TokenBucket | None:
    if per_min is None:
        return None
    if bucket is None:
        return TokenBucket(per_min, now_s)
    bucket.change_rate(per_min, now_s)
    return bucket
