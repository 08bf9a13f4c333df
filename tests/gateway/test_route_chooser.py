"""What a request costs at each worker, in seconds that are worked out by hand, and what it takes to leave its home."""

from typing import Any

import pytest

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Annotation, Cost, KindCost
from hmas.gateway.agent.config import GatewayConfig, GatewayPriorConfig, RouteChoiceConfig
from hmas.gateway.agent.pools.workers import KnownWorker, Sending
from hmas.gateway.agent.routing.route_chooser import HashRing, RouteChooser
from tests.builders.requests import model_tags
from tests.gateway.gateway_script import heartbeat, load, request

PRIOR = GatewayPriorConfig(prefill_tokens_per_s=1000.0, output_tokens=100.0, tpot_s=0.02)  # 8 s and 2 s for `asked`


class Choice:
    """Workers with one engine of 16 places each, of which a request is to have one."""

    def __init__(
        self, *names: str, prior: GatewayPriorConfig = PRIOR, heard_s: tuple[float, ...] = (0.0, 0.0), **changes: Any
    ) -> None:
        self.chooser = RouteChooser(GatewayConfig(gateway="g", prior=prior, chooser=RouteChoiceConfig(**changes)))
        self.workers = [
            KnownWorker(heartbeat=heartbeat(n), heard_s=at_s) for n, at_s in zip(names, heard_s, strict=False)
        ]
        for worker in self.workers:
            worker.engines_up, worker.slots = 1, 16
            worker.bound()
            self.chooser.enter(worker)

    def holds(self, worker: int, tokens: int) -> None:
        self.chooser.index.hold(self.workers[worker].holder, (1, 2)[: tokens // 4000], (4000, 4000)[: tokens // 4000])

    def waits(self, worker: int, wait_s: float) -> None:
        """Gives a worker six requests that run, and one on its way to it whose prompt and answer take so long each."""
        self.workers[worker].report(0.0, load(running=6), 0.0)
        self.workers[worker].remember("sent", Sending(1.0, 100, 6.0 * wait_s))
        self.workers[worker].expect("sent", wait_s)

    def made(self, *, turn: int = 1, owner: int | None = None) -> tuple[str, dict[str, tuple[float, ...]]]:
        asked = request(prompt_tokens=8000, prefix=PrefixChain((1, 2), (4000, 8000), True, 7, turn))
        at = None if owner is None else self.workers[owner]
        found = self.chooser.choose(1.0, self.workers, asked, None, owner=at)
        assert found is not None
        told = found[1].chosen("r", found[0])
        rows = list(zip(told.wait_s, told.prefill_s, told.load_s, told.cached_tokens, strict=True))
        assert sorted(found[1].total_s) == pytest.approx([sum(row[:3]) for row in rows])
        return told.worker, dict(zip(told.workers, rows, strict=True))


def test_what_a_stage_costs_at_each_worker() -> None:
    choice = Choice("w1", "w2", balance=0.5)
    choice.workers[0].report(0.0, load(queued=2, running=6, backlog_s=4.0), 0.0)
    choice.workers[1].report(0.0, load(queued=0, running=4, backlog_s=1.0), 0.0)
    choice.holds(0, 4000)
    chosen, costs = choice.made()
    # Half of the prefill is held at w1. In the mean one waits for an engine, so that each second of prefill costs one
    # more. Of 16 places 8 and 4 are taken, and each slows two seconds of decoding; w1 drains in 3 s more.
    assert costs["w1"] == pytest.approx((1.0, 4.0, 4.0 + 0.5 * 2.0 + 0.5 * 3.0, 4000))
    assert costs["w2"] == pytest.approx((0.0, 8.0, 8.0 + 0.25 * 2.0, 0))
    assert chosen == "w1"


def test_what_the_first_request_of_a_job_costs_at_each_worker() -> None:
    choice = Choice("w1", "w2", balance=0.5)
    choice.workers[0].report(0.0, load(queued=2, running=6, backlog_s=4.0), 0.0)
    choice.workers[1].report(0.0, load(queued=0, running=4, backlog_s=1.0), 0.0)
    choice.workers[0].engines_up = 2
    choice.workers[0].expect("before", 1.5)
    choice.holds(0, 4000)
    chosen, costs = choice.made(turn=0)
    # All of the backlog, and the prompts before it, shared by two engines; half a request waits for an engine.
    assert costs["w1"] == pytest.approx((4.0 + 1.5 / 2, 4.0, 0.5 * 4.0, 4000))
    assert costs["w2"] == pytest.approx((1.0, 8.0, 0.5 * 8.0, 0))
    assert chosen == "w1"


def test_what_nobody_expects_to_be_there_still_is_no_gain() -> None:
    choice = Choice("w1", balance=0.0)
    choice.holds(0, 8000)
    choice.chooser.index.trusts[choice.workers[0].holder] = 0.25
    _, costs = choice.made()
    assert costs["w1"] == pytest.approx((0.0, 6.0, 0.0, 8000))


FREE = GatewayPriorConfig(prefill_tokens_per_s=1000.0, output_tokens=0.0, tpot_s=0.02)


@pytest.mark.parametrize(
    ("share", "wait_s", "chosen"), [(0.0, 10.0, "w1"), (0.0, 10.25, "w2"), (0.5, 12.0, "w1"), (0.5, 12.25, "w2")]
)
def test_the_holder_is_left_for_more_than_a_gain_in_seconds_and_as_a_share(
    share: float, wait_s: float, chosen: str
) -> None:
    """At w2 the prompt takes 8 s."""
    choice = Choice("w1", "w2", prior=FREE, balance=0.0, min_gain_s=2.0, min_gain_share=share)
    choice.holds(0, 8000)
    choice.waits(0, wait_s)
    assert choice.made()[0] == chosen


@pytest.mark.parametrize(("bounded_load", "chosen"), [(1.5, "w2"), (1.75, "w1")])
def test_what_is_held_counts_more_than_an_even_backlog_unless_its_holder_has_many_more(
    bounded_load: float, chosen: str
) -> None:
    """w1 has seven requests, of 3.5 in the mean; its backlog would cost it 6 s more."""
    choice = Choice("w1", "w2", prior=FREE, balance=1.0, min_gain_s=2.0, min_gain_share=0.0, bounded_load=bounded_load)
    choice.holds(0, 8000)
    choice.waits(0, 6.0)
    assert choice.made()[0] == chosen


@pytest.mark.parametrize(("held", "wait_s", "chosen"), [(0, 2.0, "w1"), (0, 2.25, "w2"), (4000, 2.0, "w1"),
                                                        (8000, 2.0, "w2")])  # fmt: skip
def test_where_nobody_holds_more_than_half_a_job_is_at_home_where_it_hashes_to(
    held: int, wait_s: float, chosen: str
) -> None:
    choice = Choice("w1", "w2", prior=FREE, balance=0.0, min_gain_s=2.0 + held / 1000.0, min_gain_share=0.0)
    choice.holds(1, held)
    choice.waits(0, wait_s)
    assert choice.made(owner=0)[0] == chosen


def test_a_worker_that_was_not_heard_of_lately_costs_nothing_because_it_is_not_chosen() -> None:
    choice = Choice("w1", "w2", heard_s=(1.0 - WORKER_LOST_AFTER_S, 0.75 - WORKER_LOST_AFTER_S))
    choice.workers[0].expect("sent", 30.0)
    chosen, costs = choice.made(owner=1)
    assert (chosen, set(costs)) == ("w1", {"w1"})
    asked = request(prompt_tokens=8000, prefix=PrefixChain((1,), (8000,), True))
    assert choice.chooser.choose(2.0, choice.workers, asked, None) is None


def test_a_ring_gives_each_key_to_one_worker_and_few_to_another_when_one_leaves() -> None:
    workers = [KnownWorker(heartbeat=heartbeat(f"w{i}"), heard_s=0.0) for i in range(4)]
    ring, turned, fewer = HashRing(workers), HashRing(workers[::-1]), HashRing(workers[:3])
    step = 2**64 // 1000
    keys = [*range(0, 2**64, step), 2**64 - 1]
    owners = [ring.owner(key).name for key in keys]
    assert owners == [turned.owner(key).name for key in keys], "the order of the list does not matter"
    assert owners[-1] == owners[0], "after the last point the first comes"
    for worker in workers:
        assert 0.1 < owners.count(worker.name) / len(keys) < 0.5
    for key, owner in zip(keys, owners, strict=True):
        assert owner in (fewer.owner(key).name, "w3")
    assert [HashRing(workers[:1]).owner(key) for key in keys[::100]] == [workers[0]] * len(keys[::100])


def test_each_class_of_a_pool_has_a_ring_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[list[str]] = []

    class Counted(HashRing):
        def __init__(self, workers: Any) -> None:
            made.append([w.name for w in workers])
            super().__init__(workers)

    monkeypatch.setattr("hmas.gateway.agent.routing.route_chooser.HashRing", Counted)
    choice = Choice("w1", "w2", "w3", heard_s=(0.0, 0.0, 0.0))
    strict, lax = choice.workers[:1], choice.workers[1:]
    chain = PrefixChain((1,), (8000,), True, 7, 1)
    for _ in range(3):
        owners = [choice.chooser.owner(list(part), chain) for part in (strict, lax)]
        assert owners[0] is strict[0]
        assert owners[1] in lax
    assert made == [["w1"], ["w2", "w3"]]
    choice.chooser.leave(choice.workers[2])
    choice.chooser.owner(lax[:1], chain)
    assert made[2:] == [["w2"]]


def test_a_prompt_of_no_tokens_costs_what_its_kind_of_engine_takes() -> None:
    choice = Choice("w1", "w2", balance=0.0)
    costs = tuple(KindCost(EngineKind("vllm", name), Cost(seconds, 0.0)) for name, seconds in (("A", 2.0), ("B", 1.0)))
    for worker, cost in zip(choice.workers, costs, strict=True):
        worker.kinds = (cost.kind,)
    asked = request(prompt_tokens=0, prefix=PrefixChain((1,), (0,), True, 7, 1))
    found = choice.chooser.choose(1.0, choice.workers, asked, Annotation(model_tags(), costs))
    assert found is not None
    told = found[1].chosen("r", found[0])
    assert (told.worker, told.workers, told.prefill_s) == ("w2", ("w2", "w1"), (1.0, 2.0))


def test_of_too_many_beginnings_those_that_were_sent_last_are_told() -> None:
    choice = Choice("w1", max_told_nodes=2)
    for node in (1, 2, 1, 3):
        choice.chooser.sent(choice.workers[0], request(prompt_tokens=10, prefix=PrefixChain((node,), (10,), True)))
    (held,) = choice.chooser.report(1.0)
    assert (held.worker, held.nodes, held.tokens) == ("w1", (1, 3), (10, 10))


def test_at_the_bound_of_pools_one_without_a_worker_is_forgotten_and_what_was_learnt_of_others_stays() -> None:
    chooser = RouteChooser(GatewayConfig(gateway="g", max_pools=2))
    worker = KnownWorker(heartbeat=heartbeat("w"), heard_s=0.0)
    chooser.enter(worker)
    asked = request(prompt_tokens=8000, prefix=PrefixChain((1, 2), (4000, 8000), True, 7, 1))
    costs = (KindCost(EngineKind(), Cost(3.0, 0.01)),)
    for pool in ("m", "gone", "new", "newer"):  # "m" is the worker's
        chooser.learn(pool, asked, Annotation(model_tags(), costs))
    assert list(chooser._speeds) == ["m", "newer"]
