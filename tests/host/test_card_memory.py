"""The engines of a card never take more than it has: with moves under way, lost answers, crashes and a new arbiter."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmas.contracts.residency import (
    DemandHeard,
    HostEffect,
    HostEvent,
    MoveEnded,
    Readiness,
    ResidentEngine,
    SleepEngine,
    WakeEngine,
)
from hmas.host.agent import card_books
from hmas.host.agent.config import HostConfig
from tests.conftest import examples
from tests.host.worlds import World, live_through, random_demand, random_host

STEPS = 60


@pytest.mark.parametrize("part", range(10))  # each of which ends within a test's time-out on a busy machine
@settings(max_examples=examples(1_000))
@given(seed=st.integers(0, 2**32))
def test_no_card_ever_holds_more_than_it_has(part: int, seed: int) -> None:
    random = Random(f"{part} {seed}")
    assert live_through(World(random_host(random)), random, STEPS) is None


def test_a_host_that_forgets_the_contexts_of_who_sleeps_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        card_books, "holds_gb", lambda readiness, awake_gb, _: awake_gb * (readiness is Readiness.AWAKE)
    )
    assert any(live_through(World(random_host(Random(s))), Random(s), STEPS) is not None for s in range(60))


class MaestroAlgorithm1:
    """Maestro's Algorithm 1 as it is printed, on one card: the least recently used models are offloaded while
    UsedGPU() + S_m is above C_gpu. UsedGPU sums the models of the list LRU(GPU), of which an offloaded one is no part,
    so the context that it keeps on the card (§III-C, Sleeping) is not counted. S_m is given the benefit of the doubt:
    it is all that a model takes awake, not its weights alone."""

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._sizes = {each.engine: each.awake_gb for each in config.engines}
        self._lru: list[str] = []  # the last is the next to go
        self._todo: list[HostEffect] = []

    def step(self, now_s: float, event: HostEvent) -> list[HostEffect]:
        if isinstance(event, DemandHeard) and not self._todo:
            for demand in event.report.demands[:1]:
                self._request(demand.engine)
            return self._todo[:1]
        if isinstance(event, MoveEnded) and self._todo:
            del self._todo[0]
            return self._todo[:1]
        return []

    def _request(self, model: str) -> None:
        if model in self._lru:
            self._lru.remove(model)
            self._lru.insert(0, model)
            return
        card_gb = next(iter(self._config.cards.values()))
        while sum(self._sizes[m] for m in self._lru) + self._sizes[model] > card_gb:
            self._todo.append(SleepEngine(self._lru.pop(), True, 1))
        self._todo.append(WakeEngine(model, 1))
        self._lru.insert(0, model)


def asked_in_turn(config: HostConfig, seed: int) -> bool:
    """Whether a card of an arbiter after Algorithm 1 holds too much while models are asked for at random, and nothing
    else happens."""
    world, random = World(config, MaestroAlgorithm1), Random(seed)
    for _ in range(STEPS):
        world.report("w", [random_demand(random, random.choice([*world.engines]))])
        while world.asked:
            if world.overfull():
                return True
            world.end(next(iter(world.asked)))
    return bool(world.overfull())


def test_maestros_algorithm_1_as_printed_overfills_a_card() -> None:
    """Two models of 19.5 GB awake and three that keep 0.5 GB asleep: 40.5 GB on a card of 40."""
    engines = tuple(
        ResidentEngine(
            engine=f"m{i}", card="c0", awake_gb=19.5, asleep_gb=0.5, sleep_s=1.0, wake_s=1.0, start_s=50.0
        )
        for i in range(5)
    )  # fmt: skip
    assert asked_in_turn(HostConfig(host="h", cards={"c0": 40.0}, engines=engines), 1)
    hosts = [host for host in map(random_host, map(Random, range(60))) if len(host.cards) == 1]
    assert sum(asked_in_turn(host, 1) for host in hosts) > len(hosts) / 4
