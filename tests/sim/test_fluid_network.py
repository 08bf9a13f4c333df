"""The network in which bytes move like fluids: against linear programs, and against a plain model in fractions."""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from math import inf

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from hmas.sim.network.fabric import Fabric, Wiring
from hmas.sim.network.filling import by_key
from hmas.sim.network.fluid import Flow, FluidNetwork
from hmas.sim.processes.heap import EventHeap


class Use:
    def __init__(self, path: tuple[int, ...], key: tuple[float, ...] = ()) -> None:
        self.path, self.key = path, key


def by_linear_programs(paths: list[tuple[int, ...]], capacities: list[float]) -> list[float]:
    """The max-min fair rates: the least one is made as large as it can be, those that cannot have more keep it, and so
    on with the rest. A flow cannot have more if the dual price of its bound is not 0."""
    count, fixed = len(paths), dict[int, float]()
    while len(fixed) < count:
        open_flows = [nth for nth in range(count) if nth not in fixed]
        rows = [[float(link in path) for path in paths] + [0.0] for link in range(len(capacities))]
        rows += [[-float(nth == flow) for nth in range(count)] + [1.0] for flow in open_flows]
        bounds = [(fixed.get(nth, 0.0), fixed.get(nth, inf)) for nth in range(count)] + [(0.0, inf)]
        found = linprog(
            [0.0] * count + [-1.0], np.array(rows), capacities + [0.0] * len(open_flows), bounds=bounds
        )  # fmt: skip
        prices = found.ineqlin.marginals[len(capacities) :]
        fixed |= {flow: found.x[-1] for flow, price in zip(open_flows, prices, strict=True) if price < -1e-9}
    return [fixed[nth] for nth in range(count)]


def random_case(seed: int) -> tuple[list[tuple[int, ...]], list[float]]:
    rng = random.Random(seed)
    links = rng.randint(2, 7)
    paths = [tuple(rng.sample(range(links), rng.randint(1, min(4, links)))) for _ in range(rng.randint(1, 9))]
    return paths, [rng.choice([1.0, 2.0, rng.uniform(0.1, 3.0)]) for _ in range(links)]


def largest_difference(seeds: range) -> float:
    most = 0.0
    for seed in seeds:
        paths, capacities = random_case(seed)
        theirs = by_linear_programs(paths, capacities)
        users = [Use(path) for path in paths]
        rates = dict(by_key(users, capacities))
        most = max(most, *(abs(rates[use] - rate) for use, rate in zip(users, theirs, strict=True)))
    return most


def test_fair_rates_are_those_of_linear_programs() -> None:
    assert largest_difference(range(100)) < 1e-6


@pytest.mark.long
def test_fair_rates_are_those_of_a_thousand_linear_programs() -> None:
    assert largest_difference(range(100, 1100)) < 1e-6


Case = list[tuple[int, tuple[int, ...], int, int]]  # start, path, size and key of each flow


def plain(case: Case, capacities: list[int]) -> list[Fraction]:
    """When each flow ends, in fractions, from rates that are all worked out anew at every change."""
    left = {nth: Fraction(size) for nth, (_, _, size, _) in enumerate(case)}
    ends, now = dict[int, Fraction](), Fraction(0)
    while len(ends) < len(case):
        there = [nth for nth, (start, _, _, _) in enumerate(case) if start <= now and nth not in ends]
        rates, free = dict[int, Fraction](), [Fraction(each) for each in capacities]
        for key in sorted({case[nth][3] for nth in there}):
            growing = {nth for nth in there if case[nth][3] == key}
            level = dict.fromkeys(growing, Fraction(0))
            while growing:
                users = [[nth for nth in growing if link in case[nth][1]] for link in range(len(free))]
                step = min(free[link] / len(users[link]) for link in range(len(free)) if users[link])
                for nth in growing:
                    level[nth] += step
                for link in range(len(free)):
                    free[link] -= step * len(users[link])
                growing -= {nth for link in range(len(free)) if free[link] == 0 for nth in users[link]}
            rates |= level
        changes = [now + left[nth] / rate for nth, rate in rates.items() if rate]
        changes += [Fraction(start) for start, _, _, _ in case if start > now]
        then = min(changes)
        for nth, rate in rates.items():
            left[nth] -= rate * (then - now)
            if left[nth] == 0 and rate:
                ends[nth] = then
        now = then
    return [ends[nth] for nth in range(len(case))]


def played(case: Case, capacities: list[int], look: Callable[[FluidNetwork], object] = lambda _: None) -> list[float]:
    heap, ends = EventHeap(), [inf] * len(case)
    network = FluidNetwork(heap, [float(each) for each in capacities])

    def ended(nth: int) -> None:
        ends[nth] = heap.now_s

    def start(nth: int) -> None:
        _, path, size, key = case[nth]
        network.start(path, float(size), ended, nth, key=(float(key),) if key else ())

    for nth, row in enumerate(case):
        heap.at(float(row[0]), start, nth)
    heap.run(1e9, lambda: bool(look(network)))
    return ends


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, list[int]]:
    links = draw(st.integers(2, 5))
    path = st.lists(st.integers(0, links - 1), min_size=1, max_size=3, unique=True).map(tuple)
    row = st.tuples(st.integers(0, 6), path, st.integers(1, 9), st.integers(0, draw(st.integers(0, 3))))
    return draw(st.lists(row, min_size=1, max_size=9)), draw(
        st.lists(st.integers(1, 3), min_size=links, max_size=links)
    )


@given(cases())
def test_ends_are_exact(drawn: tuple[Case, list[int]]) -> None:
    case, capacities = drawn
    assert played(case, capacities) == pytest.approx([float(end) for end in plain(case, capacities)], rel=1e-9)


@given(cases())
def test_links_are_never_overfull_keys_are_strict_and_no_byte_is_lost(drawn: tuple[Case, list[int]]) -> None:
    case, capacities = drawn
    moved, seen = dict[Flow, float](), dict[Flow, tuple[float, float]]()

    def look(network: FluidNetwork) -> None:
        now_s, flows = network._heap.now_s, network.flows
        for flow, (since_s, rate) in seen.items():
            moved[flow] = moved.get(flow, 0.0) + rate * (now_s - since_s)
        seen.clear()
        seen.update({flow: (now_s, flow.rate) for flow in flows})
        used = [sum(flow.rate for flow in flows if link in flow.path) for link in range(len(capacities))]
        assert all(use <= capacity * (1 + 1e-12) for use, capacity in zip(used, capacities, strict=True))
        for flow in flows:
            full = [link for link in flow.path if used[link] >= capacities[link] * (1 - 1e-9)]
            rivals = [[each for each in flows if link in each.path and each.rate > 0.0] for link in full]
            assert any(
                all(
                    each.key < flow.key or (each.key == flow.key and each.rate <= flow.rate * (1 + 1e-9)) for each in on
                )
                for on in rivals
            )

    ends = played(case, capacities, look)
    assert max(ends) < inf
    sizes = sorted(float(size) for _, _, size, _ in case)
    assert sorted(moved.values()) == pytest.approx(sizes, rel=1e-9)


def test_a_flow_that_is_put_first_takes_the_link_from_then_on() -> None:
    heap = EventHeap()
    network, ends = FluidNetwork(heap, [1.0]), dict[str, float]()
    flows = {
        name: network.start((0,), 4.0, lambda name=name: ends.setdefault(name, heap.now_s), key=(key,))
        for name, key in (("a", 1.0), ("b", 2.0))
    }  # fmt: skip
    heap.at(1.0, network.rekey, flows["b"], (0.0,))
    heap.at(2.0, lambda: None)
    heap.run(2.0)
    assert [network.left(flows[name]) for name in "ab"] == [3.0, 3.0]
    heap.run(100.0)
    assert ends == {"b": 5.0, "a": 8.0}
    assert network.left(flows["a"]) == 0.0


def test_what_shares_no_link_is_left_alone() -> None:
    heap = EventHeap()
    network = FluidNetwork(heap, [1.0, 1.0])
    apart = network.start((0,), 3.0, lambda: None)
    heap.run(1.0)
    heap.at(1.0, network.start, (1,), 1.0, lambda: None)
    heap.run(1.5)
    assert (apart.since_s, apart.end_s) == (0.0, 3.0)


@pytest.mark.parametrize("path", [(), (0, 0)])
def test_a_path_that_cannot_be_is_refused(path: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="name each link once"):
        FluidNetwork(EventHeap(), [1.0]).start(path, 1.0, lambda: None)


def rates_between(pairs: Iterator[tuple[int, int]], fabric: Fabric, ports: int) -> list[float]:
    wiring = Wiring(fabric, ports, 1.0)
    return [rate for _, rate in by_key([Use(wiring.path(*pair)) for pair in pairs], wiring.capacities)]


@pytest.mark.parametrize("times", [1, 2, 4, 8])
def test_full_uplinks_carry_their_share_of_the_ports(times: int) -> None:
    fabric = Fabric(leaf=8, oversubscription=float(times))
    across = rates_between(((port, port + 8) for port in range(8)), fabric, 16)
    assert across == pytest.approx([1.0 / times] * 8)
    within = rates_between(((port, port + 4) for port in range(4)), fabric, 16)
    assert within == [1.0] * 4


def test_one_switch_is_never_full_but_a_port_is() -> None:
    assert rates_between(iter([(0, 2), (1, 2), (2, 0), (3, 1)]), Fabric(), 4) == [0.5, 0.5, 1.0, 1.0]


def test_a_pair_keeps_its_spine_and_pairs_use_all() -> None:
    wiring = Wiring(Fabric(leaf=4, spines=4), 16, 1.0)
    ups = {wiring.path(source, target)[1] for source in range(4) for target in range(4, 16)}
    assert len(ups) == 4
    assert len({wiring.path(0, 5) for _ in range(3)}) == 1
    assert sum(wiring.capacities[up] for up in ups) == 4.0


@pytest.mark.parametrize("wrong", [{"leaf": -1}, {"spines": 0}, {"oversubscription": 0.5}])
def test_a_fabric_that_cannot_be_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        Fabric(**wrong)
