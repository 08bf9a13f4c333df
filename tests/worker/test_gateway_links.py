"""Which gateways a worker may grant to, and how it splits an engine among them: at the instants of the rules."""

import pytest

from hmas.worker.agent.config import (
    GatewayLinkConfig,
)
from hmas.worker.agent.gateways import Gateway, shares
from tests.worker.builders import entry, request

LINK = GatewayLinkConfig(start_due_s=1.0, lag_s=0.5, block_s=1.0, max_block_s=5.0)


def waiting_since(granted_s: float, name: str = "r1") -> Gateway:
    """A gateway that has yet to answer one grant."""
    gateway = Gateway("g1", LINK)
    gateway.synced = True
    made = entry(1, request(name))
    made.granted_s = granted_s
    gateway.unstarted[name] = made
    return gateway


def test_a_gateway_lags_once_its_oldest_grant_is_older_than_the_bound() -> None:
    gateway = waiting_since(1.0)
    assert gateway.grantable(1.5, ["e1"])
    assert not gateway.grantable(1.75, ["e1"])
    assert gateway.lagging
    assert not gateway.see(1.75)
    gateway.answered("r1")
    assert not gateway.grantable(1.75, ["e1"]), "it is judged anew by `see` alone"
    assert gateway.see(2.0)
    assert not gateway.lagging
    assert not gateway.see(2.0), "it has caught up once"
    gateway.synced = False
    assert not gateway.grantable(2.0, ["e1"])


def test_a_grant_is_overdue_once_it_is_older_than_the_bound() -> None:
    gateway = waiting_since(1.0)
    younger = entry(2)
    younger.granted_s = 1.5
    gateway.unstarted["r2"] = younger
    assert list(gateway.overdue(2.0)) == []
    assert [each.seq for each in gateway.overdue(2.25)] == [1]
    assert [each.seq for each in gateway.overdue(2.75)] == [1, 2]


def test_blocks_double_in_a_row_and_end_at_their_instant() -> None:
    gateway = Gateway("g1", LINK)
    gateway.synced = True
    now_s, ends = 10.0, []
    for length_s in (1.0, 2.0, 4.0, 5.0, 5.0):
        gateway.block(now_s, "e1")
        assert gateway.blocked(now_s, "e1")
        assert gateway.blocked(now_s + length_s - 0.25, "e1")
        assert not gateway.blocked(now_s + length_s, "e1")
        assert not gateway.blocked(now_s, "e2")
        assert not gateway.grantable(now_s, ["e1"])
        assert gateway.grantable(now_s, ["e1", "e2"])
        assert gateway.grantable(now_s, [])
        assert not gateway.see(now_s + length_s - 0.25)
        now_s += length_s
        ends.append(gateway.see(now_s))
        assert not gateway.see(now_s), "a block ends once"
    assert all(ends)
    gateway.block(now_s, "e1")
    gateway.reached(now_s + 1.0, "e1")  # on an older connection
    gateway.block(now_s + 4.5, "e1")  # of a grant made before the block: it lasts at least `block_s` from now
    assert gateway.blocked(now_s + 5.25, "e1")
    assert not gateway.blocked(now_s + 5.5, "e1")
    gateway.reached(now_s + 5.5, "e1")
    gateway.block(now_s + 6.0, "e1")
    assert not gateway.blocked(now_s + 7.0, "e1"), "the row ends when the engine is reached"


@pytest.mark.parametrize(
    ("whole", "demands", "parts"),
    [
        (8, (0.0, 0.0), (4, 4)),
        (8, (3.0, 1.0), (6, 2)),  # 1 + 6 * 3/4 = 5.5, 1 + 1.5 = 2.5: the first of equal remainders
        (2, (100.0, 0.0), (1, 1)),
        (1, (1.0, 3.0), (0, 1)),
        (3, (1.0, 1.0, 1.0), (1, 1, 1)),
        (7, (5.0, 1.0, 0.0), (4, 2, 1)),  # 1 + 3.33, 1 + 0.67, 1
    ],
)
def test_an_engine_is_split_by_largest_remainders(
    whole: int, demands: tuple[float, ...], parts: tuple[int, ...]
) -> None:
    gateways = [Gateway(f"g{i}", LINK) for i in range(len(demands))]
    for gateway, demand in zip(gateways, demands, strict=True):
        gateway.demand = demand
    split = shares(gateways, [("e1", whole), ("e2", len(demands))])
    assert tuple(first.slots for first, _ in split) == parts
    assert all(second.slots == 1 and second.engine == "e2" for _, second in split)
    assert shares(gateways, []) == [()] * len(demands)
