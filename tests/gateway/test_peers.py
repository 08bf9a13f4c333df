"""What a gateway knows of the other gateways of its pool."""

from dataclasses import replace
from typing import Any

from hmas.contracts.use import TenantUse, UseReport
from hmas.gateway.agent.admission.peers import OthersUse, Peers
from hmas.gateway.agent.config import (
    GatewayConfig,
    NeighbourConfig,
)

CONFIG = GatewayConfig(gateway="g", incarnation="i")


def use(tenant: str = "a", **changes: Any) -> TenantUse:
    plain: dict[str, Any] = dict.fromkeys(
        ("requests", "tokens", "requests_left", "tokens_left", "in_flight", "waiting", "most_in_flight",
         "most_waiting", "demand"), 0,
    )  # fmt: skip
    return TenantUse(tenant=tenant, **(plain | changes))


def report(gateway: str, *uses: TenantUse, incarnation: str = "i") -> UseReport:
    return UseReport(gateway=gateway, incarnation=incarnation, uses=uses, promised=(), redeemed=())


def test_what_others_use_is_added_up() -> None:
    peers = Peers(CONFIG)
    first = use(in_flight=3, waiting=4, most_in_flight=5, most_waiting=2, demand=1.5)
    second = use(in_flight=2, waiting=1, most_in_flight=1, most_waiting=7, demand=0.25)
    assert peers.hear(0.0, report("g2", first)) == [(first, None)]
    assert peers.hear(0.0, report("g3", second, use("b", waiting=1)))[0] == (second, None)
    assert peers.totals() == {
        "a": OthersUse(demand=1.75, in_flight=5, waiting=5, most_in_flight=7, most_waiting=11),
        "b": OthersUse(waiting=1, most_waiting=1),
    }
    assert peers.hear(0.5, report("g2", use(in_flight=1))) == [(use(in_flight=1), first)]
    assert peers.hear(0.5, report("g2", use(), incarnation="j")) == [(use(), None)], "another start counts from 0"
    peers.hear(1.0, report("g3"))
    assert peers.totals() == {"a": OthersUse()}


def test_who_is_silent_is_gone_while_this_gateway_hears_itself() -> None:
    peers = Peers(replace(CONFIG, neighbours=NeighbourConfig(lost_s=2.0, max_peers=2)))
    assert not peers.check(0.0, ())
    peers.hear(0.0, report("g"))
    peers.hear(0.0, report("g2"))
    peers.hear(0.5, report("g3"))
    assert peers.hear(0.5, report("g4", use())) == []
    assert len(peers) == 2
    peers.hear(3.0, report("g", incarnation="an earlier start"))
    assert peers.check(2.0, ())
    assert not peers.check(2.25, ())
    assert len(peers) == 2, "it is this one that is apart"
    peers.hear(2.5, report("g"))
    assert peers.check(4.25, ())
    assert len(peers) == 2, "so shortly after, the others may not have been heard again"
    peers.hear(4.25, report("g"))
    peers.hear(4.25, report("g2"))
    peers.hear(2.5, report("g3"))
    assert peers.check(4.5, ())
    assert len(peers) == 2
    assert peers.check(4.75, ())
    assert len(peers) == 1


def test_only_what_is_said_of_tenants_with_limits_is_kept() -> None:
    peers = Peers(CONFIG)
    peers.hear(0.0, report("g"))
    peers.hear(0.0, report("g2", use("a", requests=1), use("b", requests=2)))
    assert peers.check(0.0, ["a", "c"])
    assert peers.hear(0.1, report("g2", use("b")))[0][1] is not None, "there are no more than there may be"
    assert peers.check(0.2, ["a"])
    told = {each.tenant: before for each, before in peers.hear(0.3, report("g2", use("a"), use("b")))}
    assert told["a"] == use("a", requests=1)
    assert told["b"] is None


def test_a_gateway_that_was_never_apart_forgets_who_is_silent() -> None:
    peers = Peers(replace(CONFIG, neighbours=NeighbourConfig(lost_s=2.0)))
    for now_s in (0.0, 1.0, 2.0, 2.25):
        peers.hear(now_s, report("g"))
        if now_s == 0.0:
            peers.hear(now_s, report("g2", use()))
        assert peers.check(now_s, ["a"])
        assert len(peers) == (now_s <= 2.0)
    assert peers.totals() == {}


def test_a_full_report_may_leave_out_tenants_for_a_while() -> None:
    peers = Peers(replace(CONFIG, neighbours=NeighbourConfig(lost_s=2.0, max_reported=2)))
    peers.hear(0.0, report("g2", use("a", demand=1.0), use("b", demand=2.0)))
    peers.hear(1.0, report("g2", use("c", demand=3.0), use("b", demand=4.0)))
    assert {tenant: total.demand for tenant, total in peers.totals().items()} == {"a": 1.0, "b": 4.0, "c": 3.0}
    peers.hear(2.0, report("g2", use("d"), use("b", demand=5.0)))
    assert set(peers.totals()) == {"a", "b", "c", "d"}
    peers.hear(2.5, report("g2", use("d"), use("b", demand=5.0)))
    assert set(peers.totals()) == {"b", "c", "d"}, "what was not told of for so long is not used"
    peers.hear(3.0, report("g2", use("d")))
    assert set(peers.totals()) == {"d"}, "a report that is not full has all"
