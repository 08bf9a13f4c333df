"""The limits of tenants: buckets, leases over several gateways, overdrafts, and whose state is kept."""

from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.gateway import TenantLimits
from hmas.gateway.agent.admission.limits import SharedBucket, TenantGate, TenantState, TokenBucket
from hmas.gateway.agent.admission.peers import NOBODY, OthersUse
from hmas.gateway.agent.config import (
    GatewayConfig,
)

CONFIG = GatewayConfig(gateway="g", incarnation="i")


def test_a_bucket_fills_at_its_rate_and_no_further() -> None:
    bucket = TokenBucket(60.0, 0.0)
    assert bucket.wait_s(0.0, 60.0) == 0.0
    bucket.take(50.0)
    assert (bucket.level(0.0), bucket.wait_s(0.0, 15.0), bucket.wait_s(0.0, 10.0)) == (10.0, 5.0, 0.0)
    assert bucket.wait_s(0.0, 1000.0) == 50.0, "more than a burst may be taken once the bucket is full"
    assert bucket.level(5.0) == 15.0
    bucket.take(-30.0)
    assert bucket.level(5.0) == 45.0
    assert bucket.level(500.0) == 60.0
    bucket.take(90.0)
    assert bucket.wait_s(500.0, 1.0) == 31.0
    bucket.change_rate(120.0, 510.0)
    assert bucket.level(511.0) == -20.0 + 2.0
    bucket.set_level(511.0, 100.0)
    bucket.change_rate(30.0, 511.0)
    assert bucket.level(511.0) == 30.0
    bucket.set_level(520.0, 45.0)
    assert bucket.level(530.0) == 45.0, "a lease may hold more than its present share"


def test_what_is_given_back_fills_no_more_than_a_burst() -> None:
    bucket = TokenBucket(1000.0, 0.0)
    bucket.take(1000.0)
    assert bucket.level(60.0) == 1000.0
    bucket.take(-900.0)
    assert bucket.level(60.0) == 1000.0
    bucket.set_level(60.0, 1500.0)
    bucket.take(-10.0)
    assert bucket.level(60.0) == 1500.0, "a lease may hold more than its present share"


def test_of_a_shared_bucket_a_gateway_takes_its_lease() -> None:
    bucket = SharedBucket(60.0, 0.0)
    bucket.deal(0.0, 0.25, apart=False)
    assert bucket.left(0.0) == 60.0
    assert bucket.wait_s(0.0, 15.0, 0.5, overdraw=False) == 0.0
    bucket.take(15.0)
    assert not bucket.overdrawn(0.0)
    assert bucket.wait_s(0.0, 1.0, 0.5, overdraw=False) == 0.5, "leases are dealt again then"
    assert bucket.wait_s(0.0, 1.0, 0.5, overdraw=True) == 0.0, "all together have it"
    bucket.take(1.0)
    assert bucket.overdrawn(0.0)
    assert (bucket.taken, bucket.left(0.0)) == (16.0, 44.0)
    bucket.others_took(0.0, 40.0, 0.0)
    assert bucket.left(0.0) == 4.0
    assert bucket.wait_s(0.0, 14.0, 0.5, overdraw=True) == 10.0
    bucket.others_took(0.0, None, 3.0)
    assert bucket.left(0.0) == 3.0
    bucket.others_took(0.0, None, 9.0)
    assert bucket.left(0.0) == 3.0, "who knows of less knows nothing new"
    bucket.deal(0.0, 0.5, apart=False)
    assert bucket.wait_s(0.0, 1.5, 0.5, overdraw=False) == 0.0
    bucket.deal(0.0, 1.0, apart=True)
    assert bucket._lease.level(0.0) == 1.5, "apart from the others the lease goes on"
    assert bucket.wait_s(0.0, 4.0, 9.0, overdraw=False) == 1.0, "alone it need not wait for an exchange"


@pytest.mark.parametrize(
    ("limit", "lease", "held", "others", "in_flight", "overdrawn", "may"),
    [
        (None, None, 99, 99, 9, True, True),
        (4, None, 3, 0, 3, False, True),
        (4, None, 4, 0, 4, False, False),
        (4, None, 2, 2, 2, False, False),
        (4, 2, 1, 9, 1, True, True),  # within its lease nobody else counts
        (4, 2, 2, 0, 2, False, False),
        (4, 0, 0, 3, 0, False, True),  # one that has nothing may overdraw once
        (4, 0, 0, 3, 0, True, False),
        (4, 0, 0, 4, 0, False, False),
        (4, 0, 0, 0, 1, False, False),
    ],
)
def test_what_a_tenant_may_hold(
    limit: int | None, lease: int | None, held: int, others: int, in_flight: int, overdrawn: bool, may: bool
) -> None:
    state = TenantState(limits=TenantLimits(tenant="a"), in_flight=in_flight, overdrawn=overdrawn)
    assert state.may_hold(held, others, limit, lease) is may


def test_leases_are_dealt_by_demand() -> None:
    """A tenth of the limit evenly, the rest by demand as it was told; of what nobody has leased."""
    limits = TenantLimits(tenant="a", requests_per_min=600.0, max_in_flight=40, max_queued=20)
    state = TenantState(limits=limits, requests=SharedBucket(600.0, 0.0), in_flight=4, waiting=2, asked=8, demand=3.0)
    others = OthersUse(demand=1.0, in_flight=9, waiting=3, most_in_flight=16, most_waiting=8)
    state.deal(0.0, 0.5, 2, others)
    share = 0.1 * 0.5 + 0.9 * 3.0 / 4.0
    assert state.demand == 3.0 + 0.25 * (16.0 - 3.0)
    assert (state.asked, state.overdrawn, state.others) == (0, False, others)
    assert state.most_in_flight == 4 + int(20 * share)
    assert state.most_waiting == 2 + int(10 * share)
    assert state.requests is not None
    assert state.requests._lease.level(0.0) == pytest.approx(600.0 * share)
    state.accept(0.0, 100)
    assert (state.in_flight, state.waiting, state.requests.taken, state.overdrawn) == (5, 3, 1.0, False)
    told = state.use(0.0)
    assert (told.requests, told.requests_left, told.tokens, told.tokens_left) == (1.0, 599.0, 0.0, 0.0)
    assert (told.in_flight, told.waiting, told.demand) == (5, 3, state.demand)
    assert (told.most_in_flight, told.most_waiting) == (state.most_in_flight, state.most_waiting)
    state.deal(0.0, 0.5, 4, None)
    assert (state.overdrawn, state.others) == (True, NOBODY)
    assert (state.most_in_flight, state.most_waiting) == (10, 5)
    state.limits = TenantLimits(tenant="a", max_in_flight=2)
    state.deal(0.0, 0.5, 4, None)
    assert state.most_in_flight == 1
    assert state.most_waiting is None


@pytest.mark.parametrize("kind", ["max_in_flight", "max_queued"])
def test_a_lowered_limit_holds_before_the_next_exchange(kind: str) -> None:
    gate = TenantGate(CONFIG)
    for limit, taken in ((64, 2), (3, 1), (5, 0)):  # a raised one is leased at the next exchange
        change: dict[str, Any] = {kind: limit}
        gate.change(1.0, (TenantLimits(tenant="a", **change),))
        if limit == 64:
            gate.refusal(1.0, "a", 10)
            gate.exchange(1.0)
        accepted = 0
        while accepted < 2 and gate.refusal(1.0, "a", 10) is None:
            gate.accept(1.0, "a", 10)
            accepted += 1
        assert accepted == taken
    gate.exchange(2.0)
    assert gate.refusal(2.0, "a", 10, requests=2) is None
    assert gate.refusal(2.0, "a", 10, requests=3) is not None
    gate.change(2.0, ())
    assert gate.refusal(2.0, "a", 10, requests=99) is None


def test_what_was_accepted_beyond_a_lease_is_an_overdraft() -> None:
    for in_flight, waiting in ((1, None), (None, 1)):
        state = TenantState(limits=TenantLimits(tenant="a"), most_in_flight=in_flight, most_waiting=waiting)
        state.accept(0.0, 10)
        assert not state.overdrawn
        state.accept(0.0, 10)
        assert state.overdrawn
    state = TenantState(limits=TenantLimits(tenant="a"), tokens=SharedBucket(100.0, 0.0))
    state.accept(0.0, 100)
    assert not state.overdrawn
    state.accept(0.0, 1)
    assert state.overdrawn
    assert state.tokens is not None
    assert state.tokens.taken == 101.0


@pytest.mark.parametrize("changes", [{"in_flight": 1}, {"asked": 1}, {"demand": 0.02}])
def test_a_tenant_that_has_something_or_asks_is_reported(changes: dict[str, Any]) -> None:
    assert TenantState(limits=TenantLimits(tenant="a"), **changes).used
    assert not TenantState(limits=TenantLimits(tenant="a"), demand=0.01).used


def test_tenants_without_limits_or_requests_are_forgotten_beyond_the_bound() -> None:
    gate = TenantGate(replace(CONFIG, max_idle_tenants=3))
    gate.change(0.0, (TenantLimits(tenant="limited", max_in_flight=9),))
    gate.accept(0.0, "busy", 10)
    for tenant in ("limited", "idle", "next"):
        assert gate.refusal(0.0, tenant, 10) is None
    assert set(gate._states) == {"busy", "limited", "next"}
    gate.ended("busy", waiting=True, tokens=0)
    assert (gate._states["busy"].in_flight, gate._states["busy"].waiting) == (0, 0)
    gate.change(1.0, ())
    assert set(gate._states) == set(), "of those without requests nothing is kept"


def test_an_ends_tokens_are_charged_and_a_prompt_estimated_too_long_is_paid_back() -> None:
    gate = TenantGate(CONFIG)
    gate.change(0.0, (TenantLimits(tenant="a", tokens_per_min=100.0),))
    gate.accept(0.0, "a", 60)
    gate.started("a")
    gate.ended("a", waiting=False, tokens=-20)
    state = gate._states["a"]
    assert state.tokens is not None
    assert (state.tokens.left(0.0), state.waiting, state.in_flight) == (60.0, 0, 0)
