"""What moves from a worker to another, and when."""

from typing import Any

import pytest

from hmas.gateway.agent.config import GatewayConfig, RebalanceConfig
from hmas.gateway.agent.requests.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.routing.rebalancing import Rebalancer
from hmas.gateway.agent.routing.routing import Router
from tests.builders.registry import engine_info
from tests.gateway.gateway_script import annotation, heartbeat, load, request


class Pool:
    """A router with workers, a ledger with requests that wait there, and what moves them."""

    def __init__(self, *backlogs_s: float, **changes: Any) -> None:
        config = GatewayConfig(gateway="g", max_attempts=4, rebalance=RebalanceConfig(**changes))
        self.router, self.ledger = Router(config), Ledger()
        self.rebalancer = Rebalancer(config, self.router, self.ledger)
        for number, backlog_s in enumerate(backlogs_s):
            self.router.connect(f"w{number}")
            self.router.hear(0.0, heartbeat(f"w{number}", backlog_s=backlog_s, queued=5))

    def wait(self, name: str, worker: str, output_tokens: float) -> LedgerEntry:
        entry = LedgerEntry(request=request(name), pool="m", offered=True)
        entry.annotation = annotation(output_tokens)
        self.ledger.open(entry)
        self.ledger.queue(entry, 0.0, worker)
        return entry

    def moves(self, now_s: float) -> list[tuple[str, str]]:
        return [(entry.request.id, to.name) for entry, to in self.rebalancer.moves(now_s)]


def test_an_imbalance_that_lasts_moves_the_last_sent_to_the_least_loaded() -> None:
    pool = Pool(10.0, 1.0, 2.0, every_s=0.5, after=3, moves=8, min_s=2.0, min_share=0.5)
    for name in ("r1", "r2", "r3", "r4", "r5", "r6"):
        pool.wait(name, "w0", 190.0)  # 2 s each
    assert pool.moves(1.0) == []
    assert pool.moves(1.25) == [], "it is not time"
    assert pool.moves(1.5) == []
    # w1 with 1 s: a gap of 9; then w2 with 2 s: of 10 - 2 - 2; then w1 with 3 s: of 10 - 4 - 3; then w2 with 4 s: 0
    assert pool.moves(2.0) == [("r6", "w1"), ("r5", "w2"), ("r4", "w1")]
    assert pool.moves(2.25) == []
    assert len(pool.moves(2.5)) == 3, "as long as it lasts"


def test_a_balance_in_between_begins_the_count_anew() -> None:
    pool = Pool(10.0, 1.0, every_s=0.5, after=2)
    pool.wait("r1", "w0", 190.0)
    assert pool.moves(1.0) == []
    pool.router.load(1.0, "w0", load(queued=5, backlog_s=1.0))
    assert pool.moves(1.5) == []
    pool.router.load(1.5, "w0", load(queued=5, backlog_s=10.0))
    assert pool.moves(2.0) == []
    assert pool.moves(2.5) == [("r1", "w1")]


@pytest.mark.parametrize(
    ("most_s", "least_s", "moved"), [(3.0, 1.0, False), (3.125, 1.0, True), (20.0, 10.0, False), (20.0, 9.875, True)]
)
def test_a_gap_is_worth_a_move_above_a_bound_and_a_share(most_s: float, least_s: float, moved: bool) -> None:
    pool = Pool(most_s, least_s, every_s=0.5, after=1, min_s=2.0, min_share=0.5)
    pool.wait("r1", "w0", 10.0)
    assert bool(pool.moves(1.0)) is moved


def test_what_moves_and_what_stays() -> None:
    pool = Pool(10.0, 1.0, every_s=0.5, after=1, moves=2)
    entries = [pool.wait(f"r{i}", "w0", 10.0) for i in range(6)]
    entries[5].attempt, entries[4].attempt = 4, 3  # the last one was sent as often as it may be
    entries[3].refused_by = ("w1",)
    assert pool.moves(1.0) == [("r4", "w1"), ("r2", "w1")]
    pool.router.load(1.0, "w0", load(queued=0, backlog_s=10.0))
    assert pool.moves(2.0) == [], "nothing waits there"
    pool.router.hear(2.0, heartbeat("w1", up=False))
    pool.router.load(2.0, "w0", load(queued=5, backlog_s=10.0))
    assert pool.moves(3.0) == [], "nobody else has an engine"
    pool.router.hear(3.0, heartbeat("w1"))
    pool.router.hear(3.0, heartbeat("w0", up=False, queued=5))
    assert pool.moves(4.0) == [("r4", "w1"), ("r2", "w1")], "without an engine all may go, whatever the backlogs"


@pytest.mark.parametrize(("most", "least"), [(1, 4), (4, 1)])
def test_what_moves_is_as_much_of_each_backlog_as_its_workers_engines_make_of_it(most: int, least: int) -> None:
    pool = Pool(10.0, 1.0, every_s=0.5, after=1, moves=8, min_s=2.0, min_share=0.5)
    for number, (engines, backlog_s) in enumerate(((most, 10.0), (least, 1.0))):
        infos = tuple(engine_info(f"e{i}") for i in range(engines))
        pool.router.hear(0.0, heartbeat(f"w{number}", engines=infos, backlog_s=backlog_s, queued=8))
    for number in range(8):
        pool.wait(f"r{number}", "w0", 190.0)  # 2 s on one engine, 0.5 s of the backlog of four
    assert len(pool.moves(1.0)) == 4, "the gap of 9 s becomes 6.5, 4, 1.5 and -1"
