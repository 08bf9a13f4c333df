"""The limits of a tenant: requests and tokens per minute, requests in flight, requests waiting for a first byte.

They hold over all gateways together. No request waits for another gateway: each keeps a copy of the tenant's bucket,
from which it subtracts what it takes itself at once and what the others take when they report it, every `exchange_s`
seconds. Until the next exchange it takes no more than its lease: its share of what the bucket held at the last one.
Shares follow the demand. So what is taken in all exceeds a limit only by requests that came to several gateways within
one exchange, and the bucket pays that back. If more tenants are busy than a report holds, they take turns, so that the
exchanges of each are further apart.
"""

from dataclasses import dataclass
from heapq import nsmallest
from math import inf

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.outcome import Outcome
from hmas.contracts.use import TenantUse, UseReport
from hmas.gateway.agent.admission.peers import NOBODY, OthersUse, Peers
from hmas.gateway.agent.config import GatewayConfig

EVEN_SHARE = 0.1  # this part of a limit is shared evenly, the rest by demand, so that no gateway has nothing
DEMAND_GAIN = 0.25  # weight of the newest interval in the mean of the demand
FORGET_DEMAND = 0.01  # requests per s below which a tenant has none


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
        """Takes `amount`, or gives it back if it is negative, up to a whole burst."""
        most = inf if amount >= 0.0 else max(self._level, self.per_min)
        self._level = min(self._level - amount, most)

    def level(self, now_s: float) -> float:
        self._fill(now_s)
        return self._level

    def set_level(self, now_s: float, level: float) -> None:
        self._level, self._filled_s = level, now_s

    def _fill(self, now_s: float) -> None:
        if self._level < self.per_min:  # a lease may hold more than its present share
            self._level = min(self.per_min, self._level + (now_s - self._filled_s) * self.per_min / 60.0)
        self._filled_s = now_s


class SharedBucket:
    """A rate limit that several gateways share: a copy of the bucket of all, and this gateway's lease. `taken` is what
    this gateway has taken from it since its start."""

    def __init__(self, per_min: float, now_s: float) -> None:
        self._all = TokenBucket(per_min, now_s)
        self._lease = TokenBucket(per_min, now_s)
        self._share = 1.0
        self.taken = 0.0

    def change_rate(self, per_min: float, now_s: float) -> None:
        self._all.change_rate(per_min, now_s)
        self._lease.change_rate(per_min * self._share, now_s)

    def wait_s(self, now_s: float, amount: float, soonest_s: float, *, overdraw: bool) -> float:
        """Returns the seconds until `amount` may be taken: 0 if the lease has it, or all gateways together if
        `overdraw`; else at least `soonest_s`, the time until leases are dealt again."""
        wait_s = self._all.wait_s(now_s, amount)
        if (overdraw and not wait_s) or not self._lease.wait_s(now_s, amount):
            return 0.0
        return wait_s if self._share == 1.0 else max(wait_s, soonest_s)

    def left(self, now_s: float) -> float:
        return self._all.level(now_s)

    def take(self, amount: float) -> None:
        self.taken += amount
        self._all.take(amount)
        self._lease.take(amount)

    def overdrawn(self, now_s: float) -> bool:
        return self._lease.level(now_s) < 0.0

    def others_took(self, now_s: float, amount: float | None, left: float) -> None:
        """Takes what another gateway took, as it reports; `amount` is None if it is heard of for the first time. Then
        `left`, its copy's level, tells what was taken before."""
        if amount is not None:
            self._all.take(amount)
        elif left < self._all.level(now_s):
            self._all.set_level(now_s, left)

    def deal(self, now_s: float, share: float, *, apart: bool) -> None:
        """Sets this gateway's share. Its lease is dealt anew, unless it is apart from the others: then the copy is not
        to be trusted, and the lease goes on with its share of the rate."""
        level = self._lease.level(now_s) if apart else self._all.level(now_s) * share
        self._share = share
        self._lease.change_rate(self._all.per_min * share, now_s)
        self._lease.set_level(now_s, level)


@dataclass(slots=True, kw_only=True)
class TenantState:
    """`asked`: requests since `dealt_s`, when the leases were dealt; `demand`: their mean per s. `overdrawn`: since
    then one was accepted for which this gateway's lease did not suffice. `most_in_flight`, `most_waiting`: the leases
    of what has no rate."""

    limits: TenantLimits
    dealt_s: float = 0.0
    requests: SharedBucket | None = None
    tokens: SharedBucket | None = None
    in_flight: int = 0
    waiting: int = 0
    asked: int = 0
    demand: float = 0.0
    overdrawn: bool = False
    others: OthersUse = NOBODY
    most_in_flight: int | None = None
    most_waiting: int | None = None

    @property
    def used(self) -> bool:
        """Whether there is anything to report."""
        return self.in_flight > 0 or self.asked > 0 or self.demand > FORGET_DEMAND

    def may_hold(self, held: int, others: int, limit: int | None, lease: int | None, more: int = 1) -> bool:
        """Returns whether so many `more` requests may be in flight, or waiting, beside the `held` ones here and
        `others`."""
        if limit is None or (lease is not None and held + more <= lease):
            return True
        return (lease is None or (not self.in_flight and not self.overdrawn)) and held + others + more <= limit

    def wait_s(self, bucket: SharedBucket | None, now_s: float, amount: float, soonest_s: float) -> float:
        return 0.0 if bucket is None else bucket.wait_s(now_s, amount, soonest_s, overdraw=not self.overdrawn)

    def accept(self, now_s: float, prompt_tokens: int) -> None:
        self.in_flight += 1
        self.waiting += 1
        for bucket, amount in ((self.requests, 1.0), (self.tokens, float(prompt_tokens))):
            if bucket is not None:
                bucket.take(amount)
                self.overdrawn |= bucket.overdrawn(now_s)
        for held, lease in ((self.in_flight, self.most_in_flight), (self.waiting, self.most_waiting)):
            self.overdrawn |= lease is not None and held > lease

    def deal(self, now_s: float, interval_s: float, gateways: int, others: OthersUse | None) -> None:
        """Deals this gateway's leases anew. `others` is None if it is apart from the `gateways` that it knew."""
        demand_before = self.demand  # what the others know, so that all shares make one
        self.demand += DEMAND_GAIN * (self.asked / interval_s - self.demand)
        share, apart = 1.0 / gateways, others is None
        self.asked, self.overdrawn = 0, apart  # apart from the others it cannot know what they have room for
        self.others = others or NOBODY
        if demand_before + self.others.demand > FORGET_DEMAND and not apart:
            share = EVEN_SHARE * share + (1.0 - EVEN_SHARE) * demand_before / (demand_before + self.others.demand)
        for bucket in (self.requests, self.tokens):
            if bucket is not None:
                bucket.deal(now_s, share, apart=apart)
        limits, known = self.limits, self.others
        self.most_in_flight = _lease(limits.max_in_flight, self.in_flight, known.most_in_flight, share, apart)
        self.most_waiting = _lease(limits.max_queued, self.waiting, known.most_waiting, share, apart)

    def use(self, now_s: float) -> TenantUse:
        requests, tokens = self.requests, self.tokens
        return TenantUse(
            tenant=self.limits.tenant,
            requests=0.0 if requests is None else requests.taken,
            tokens=0.0 if tokens is None else tokens.taken,
            requests_left=0.0 if requests is None else requests.left(now_s),
            tokens_left=0.0 if tokens is None else tokens.left(now_s),
            in_flight=self.in_flight,
            waiting=self.waiting,
            most_in_flight=self.most_in_flight or 0,
            most_waiting=self.most_waiting or 0,
            demand=self.demand,
        )

    def hear(self, now_s: float, use: TenantUse, before: TenantUse | None) -> None:
        """Takes from the buckets what another gateway took."""
        if self.requests is not None:
            amount = None if before is None else use.requests - before.requests
            self.requests.others_took(now_s, amount, use.requests_left)
        if self.tokens is not None:
            amount = None if before is None else use.tokens - before.tokens
            self.tokens.others_took(now_s, amount, use.tokens_left)


def _lease(limit: int | None, held: int, leased: int, share: float, apart: bool) -> int | None:
    """Returns how many requests a gateway may hold until the next exchange: those it has, and its share of what the
    others have not `leased`. Apart from the others it may hold at least one, if the limit allows any. None: there is no
    limit."""
    if limit is None:
        return None
    return min(limit, max(1, int(limit * share))) if apart else held + int((limit - held - leased) * share)


def _within(lease: int | None, limit: int | None) -> int | None:
    """Returns what is left of a lease under a limit that may have been lowered since."""
    return lease if lease is None or limit is None else min(lease, limit)


@dataclass(frozen=True, slots=True)
class TenantRefusal:
    """Why a tenant's request is refused. `retry_after_s` is the time until its rate allows it, in seconds; None if it
    must wait until one of the tenant's own requests moves on, which no rate can tell."""

    outcome: Outcome
    message: str
    retry_after_s: float | None


def _advice(requests: int, moves_on: str) -> str:
    """Returns what a client whose tenant has too many requests may do; the one at hand counts as `requests`."""
    if requests == 1:
        return f"wait until one of them {moves_on}"
    return f"this one counts as {requests}, one for each answer, so ask for fewer answers, or wait"


class TenantGate:
    """The limits and current use of every tenant. A tenant without configured limits is unbounded."""

    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._peers = Peers(config)
        self._states: dict[str, TenantState] = {}
        self._limits: dict[str, TenantLimits] = {}
        self._totals: dict[str, OthersUse] = {}
        self._exchanged_s = 0.0

    def change(self, now_s: float, limits: tuple[TenantLimits, ...]) -> None:
        """Replaces the limits of all tenants. Rate limits keep their levels, and requests in flight stay counted."""
        self._limits = {each.tenant: each for each in limits}
        for tenant, state in list(self._states.items()):
            if tenant not in self._limits and not state.in_flight:
                del self._states[tenant]
            else:
                self._apply(now_s, state, self._limits.get(tenant, TenantLimits(tenant=tenant)))

    def refusal(self, now_s: float, tenant: str, prompt_tokens: int, requests: int = 1) -> TenantRefusal | None:
        """Returns why the tenant may not send `requests` requests, of `prompt_tokens` tokens in all, at once now, or
        None if it may."""
        state = self._state(now_s, tenant)
        limits, others, soonest_s = state.limits, state.others, self._config.neighbours.exchange_s
        state.asked += requests
        most = limits.max_in_flight
        if not state.may_hold(state.in_flight, others.in_flight, most, state.most_in_flight, requests):
            message = (
                f"tenant `{tenant}` has {state.in_flight + others.in_flight} requests in flight and may have {most} "
                f"(max_in_flight): {_advice(requests, 'ends')}"
            )
            return TenantRefusal(Outcome.TENANT_IN_FLIGHT, message, None)
        most = limits.max_queued
        if not state.may_hold(state.waiting, others.waiting, most, state.most_waiting, requests):
            message = (
                f"tenant `{tenant}` has {state.waiting + others.waiting} requests that wait for their first byte and "
                f"may have {most} (max_queued): {_advice(requests, 'starts')}"
            )
            return TenantRefusal(Outcome.TENANT_QUEUE_FULL, message, None)
        if (wait_s := state.wait_s(state.requests, now_s, float(requests), soonest_s)) > 0.0:
            message = f"tenant `{tenant}` has used its {limits.requests_per_min:g} requests per minute: try again later"
            return TenantRefusal(Outcome.TENANT_REQUEST_RATE, message, wait_s)
        if (wait_s := state.wait_s(state.tokens, now_s, prompt_tokens, soonest_s)) > 0.0:
            message = f"tenant `{tenant}` has used its {limits.tokens_per_min:g} tokens per minute: try again later"
            return TenantRefusal(Outcome.TENANT_TOKEN_RATE, message, wait_s)
        return None

    def accept(self, now_s: float, tenant: str, prompt_tokens: int) -> None:
        """Counts a request that was accepted. Its prompt tokens are charged now, its output tokens when it ends."""
        self._state(now_s, tenant).accept(now_s, prompt_tokens)

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

    # --- other gateways ---

    def hear(self, now_s: float, report: UseReport) -> None:
        """Takes what another gateway says, or what this one said, by which it knows that it is heard."""
        for use, before in self._peers.hear(now_s, report):
            if use.tenant in self._limits:
                self._state(now_s, use.tenant).hear(now_s, use, before)

    def exchange(self, now_s: float) -> tuple[TenantUse, ...] | None:
        """Deals the leases anew if it is time; returns what to report then, which is nothing without limits.

        A report has at most `max_reported` tenants. Of more that have something to report, those come first whose
        leases are oldest, and the others keep theirs, because leases hold until they are reported again.
        """
        if now_s - self._exchanged_s < self._config.neighbours.exchange_s or not self._limits:
            return None
        self._exchanged_s = now_s
        together = self._peers.check(now_s, self._limits) or not self._peers
        gateways = 1 + len(self._peers)
        self._totals = totals = self._peers.totals() if together else {}
        limited = {tenant: state for tenant, state in self._states.items() if tenant in self._limits}
        used = [state for state in limited.values() if state.used]
        due = nsmallest(self._config.neighbours.max_reported, used, key=lambda state: state.dealt_s)
        reported = {state.limits.tenant for state in due}
        for tenant, state in limited.items():
            if tenant in reported or not state.used:
                others = totals.get(tenant, NOBODY) if together else None
                state.deal(now_s, now_s - state.dealt_s, gateways, others)
                state.dealt_s = now_s
        return tuple(state.use(now_s) for state in due)

    def _state(self, now_s: float, tenant: str) -> TenantState:
        state = self._states.get(tenant)
        if state is None:
            if len(self._states) >= self._config.max_idle_tenants:
                self._states = {name: s for name, s in self._states.items() if s.in_flight or name in self._limits}
            state = TenantState(limits=TenantLimits(tenant=tenant), dealt_s=self._exchanged_s)
            self._states[tenant] = state
            self._apply(now_s, state, self._limits.get(tenant, state.limits))
            if self._peers:
                state.deal(
                    now_s, self._config.neighbours.exchange_s, 1 + len(self._peers), self._totals.get(tenant, NOBODY)
                )
        return state

    def _apply(self, now_s: float, state: TenantState, limits: TenantLimits) -> None:
        state.limits = limits
        state.most_in_flight = _within(state.most_in_flight, limits.max_in_flight)
        state.most_waiting = _within(state.most_waiting, limits.max_queued)
        state.requests = _bucket(state.requests, limits.requests_per_min, now_s)
        state.tokens = _bucket(state.tokens, limits.tokens_per_min, now_s)


def _bucket(bucket: SharedBucket | None, per_min: float | None, now_s: float) -> SharedBucket | None:
    if per_min is None:
        return None
    if bucket is None:
        return SharedBucket(per_min, now_s)
    bucket.change_rate(per_min, now_s)
    return bucket
