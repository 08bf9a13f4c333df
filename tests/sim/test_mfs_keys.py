"""The examples and the theorem of the MFS paper, on the simulated network."""

import random
from collections.abc import Callable
from functools import cache
from itertools import product
from math import inf

import pytest

from hmas.sim.network.fluid import FluidNetwork
from hmas.sim.processes.heap import EventHeap
from hmas_lab.sim.mfs import LEVELS, URGENT, blocking, hand_over, level, mlu, promoted_s, red

SIZES = {"A": 2.0, "B": 4.0, "C": 3.0}  # Table 1
DUE_S = {"A": 18.0 - 9.0, "B": 12.0 - 6.0, "C": 7.0}  # less what must follow


def table_1(keys: dict[str, tuple[float, ...]], promote_s: float = inf, least: bool = False) -> dict[str, float]:
    """When each flow of Table 1 ends on a link that moves 1 in a second. At `promote_s` C goes to level 1.
    With `least` it gets no more than it needs to end in time."""
    heap, ends = EventHeap(), dict[str, float]()
    network = FluidNetwork(heap, [1.0, SIZES["C"] / DUE_S["C"]])

    def ended(name: str) -> None:
        ends[name] = heap.now_s

    for name, size in SIZES.items():
        path = (0, 1) if least and name == "C" else (0,)
        flow = network.start(path, size, ended, name, key=keys[name])
        if name == "C" and promote_s < inf:
            heap.at(promote_s, network.rekey, flow, hand_over(1, DUE_S["C"]))
    heap.run(100.0)
    return ends


def late(ends: dict[str, float]) -> list[str]:
    return sorted(name for name, end_s in ends.items() if end_s > DUE_S[name] + 1e-9)


# A is KV that layer 1 waits for, B a collective of layer 0, C a hand-over.
DEFERRED = {"A": blocking(1, 0), "B": blocking(0, 0), "C": hand_over(LEVELS, DUE_S["C"])}


@pytest.mark.parametrize(
    ("name", "ends", "late_ones"),
    [
        ("fair", {"A": 6.0, "B": 9.0, "C": 8.0}, ["B", "C"]),
        ("sjf", {"A": 2.0, "B": 9.0, "C": 5.0}, ["B"]),
        ("edf", {"A": 7.0, "B": 9.0, "C": 3.0}, ["B"]),
        ("karuna", {"A": 3.5, "B": 9.0, "C": 7.0}, ["B"]),
        ("defer and promote", {"A": 9.0, "B": 4.0, "C": 7.0}, []),
    ],
)
def test_table_1(name: str, ends: dict[str, float], late_ones: list[str]) -> None:
    if name == "fair":
        found = table_1(dict.fromkeys(SIZES, ()))
    elif name == "sjf":
        found = table_1({each: (size,) for each, size in SIZES.items()})
    elif name == "edf":  # only C has a deadline of its own
        found = table_1({"A": (1.0,), "B": (1.0,), "C": (0.0, DUE_S["C"])})
    elif name == "karuna":  # the least rate for what has a deadline, and the shortest of the others
        found = table_1({"A": (1.0, SIZES["A"]), "B": (1.0, SIZES["B"]), "C": (0.0,)}, least=True)
    else:
        found = table_1(DEFERRED, promoted_s(SIZES["C"], DUE_S["C"], 1.0, urgent=1.0))
    assert found == pytest.approx(ends)
    assert late(found) == late_ones


def test_table_1_needs_promotion_at_the_last_moment() -> None:
    """At the half of the link that the paper recommends (U = 0.5), C is promoted too early and makes B late."""
    assert late(table_1(DEFERRED, promoted_s(SIZES["C"], DUE_S["C"], 1.0, URGENT))) == ["B"]
    assert late(table_1(DEFERRED, 4.1)) == ["C"]
    assert late(table_1(DEFERRED)) == ["C"]


def test_levels_follow_the_utilization() -> None:
    assert [level(each) for each in (inf, 0.5, 0.49, 0.125, 0.03125, 0.0)] == [1, 1, 2, 2, 3, LEVELS]
    assert (mlu(3.0, 6.0, 1.0), mlu(3.0, 6.0, 1.0, load=0.5), mlu(3.0, 0.0, 1.0)) == (0.5, 1.0, inf)
    at_s = promoted_s(3.0, 7.0, 1.0)
    assert (level(mlu(3.0, 7.0 - at_s, 1.0)), level(mlu(3.0, 7.0 - at_s + 0.01, 1.0))) == (1, 2)


def test_hand_overs_are_first_or_last() -> None:
    keys = [hand_over(1, 9.0), blocking(3, 3), blocking(4, 3), blocking(9, 0), hand_over(2, 1.0), hand_over(8, 0.0)]
    assert keys == sorted(keys)


def test_the_effective_deadline_of_a_batch() -> None:
    assert red([4.0]) == 4.0
    assert red([1.0, 10.0, 11.0, 12.0]) == pytest.approx(0.25 * 1.0 + 0.75 * 10.0)
    assert red([12.0, 2.0, 1.0]) == pytest.approx(2 / 3 * 1.0 + 1 / 3 * 12.0)
    assert red([1.0, 2.0, 3.0]) == pytest.approx(1 / 3 * 1.0 + 2 / 3 * 2.0)
    with pytest.raises(ValueError, match="no deadline"):
        red([])


# A flow: the layer that waits for it, its links, its size, and the layer after which it is there (-1: from the start).
Needed = tuple[int, tuple[int, ...], int, int]


def makespan(computes: tuple[int, ...], flows: list[Needed], key: Callable[[int], tuple[float, ...]]) -> float:
    """When the last layer of a prefill unit has run."""
    heap = EventHeap()
    network = FluidNetwork(heap, [1.0, 1.0])
    missing = [sum(target == layer for target, _, _, _ in flows) for layer in range(len(computes))]
    current, computing = 0, False

    def release(layer: int) -> None:
        for target, path, size, after in flows:
            if after == layer:
                network.start(path, float(size), came, target, key=key(target))

    def came(target: int) -> None:
        missing[target] -= 1
        compute()

    def compute() -> None:
        nonlocal computing
        if not computing and current < len(computes) and not missing[current]:
            computing = True
            heap.after(float(computes[current]), ran)

    def ran() -> None:
        nonlocal current, computing
        release(current)
        current, computing = current + 1, False
        compute()

    release(-1)
    compute()
    heap.run(1e3)
    assert current == len(computes)
    return heap.now_s


def least_makespan(computes: tuple[int, ...], flows: list[Needed]) -> int:
    """The same in the best of all schedules that serve, in each second, any flows that share no link, or none."""
    layers, count = len(computes), len(flows)

    @cache
    def rest(layer: int, done: int, left: tuple[int, ...]) -> int:
        if layer == layers:
            return 0
        there = [nth for nth in range(count) if left[nth] and flows[nth][3] < layer]
        runs = not any(left[nth] for nth in range(count) if flows[nth][0] <= layer)
        best = 10**6
        for chosen in product((False, True), repeat=len(there)):
            served = [nth for nth, is_served in zip(there, chosen, strict=True) if is_served]
            links = [link for nth in served for link in flows[nth][1]]
            if len(links) > len(set(links)) or not (runs or served):
                continue
            then = tuple(each - (nth in served) for nth, each in enumerate(left))
            ends = runs and done + 1 == computes[layer]
            best = min(best, 1 + rest(layer + ends, 0 if ends else done + runs, then))
        return best

    return rest(0, 0, tuple(size for _, _, size, _ in flows))


def by_layer(target: int) -> tuple[float, ...]:
    return blocking(target, 0)


def random_unit(rng: random.Random) -> tuple[tuple[int, ...], list[Needed]]:
    layers = rng.randint(2, 3)
    flows: list[Needed] = [(layer, (0,), rng.randint(1, 2), -1) for layer in range(layers) if rng.random() < 0.7]
    flows += [(layer, (0,), 1, layer - 1) for layer in range(1, layers) if rng.random() < 0.6]
    return tuple(rng.randint(1, 2) for _ in range(layers)), flows


def test_on_one_link_no_schedule_is_sooner_than_the_nearest_layer_first() -> None:
    """Theorem 1, in its weak form, against enumeration."""
    rng, cases = random.Random(1), 0
    while cases < 10_000:
        computes, flows = random_unit(rng)
        assert makespan(computes, flows, by_layer) == pytest.approx(least_makespan(computes, flows)), (computes, flows)
        cases += 1


def test_on_two_ports_another_order_can_be_sooner() -> None:
    """KV of layer 2 needs both ports at once. If that of layer 1 has its port first, the collective then has the other
    one, and half of what layer 2 waits for comes too late; layer 1 itself begins at the same time either way."""
    flows: list[Needed] = [(1, (0,), 1, -1), (1, (1,), 1, 0), (2, (0, 1), 2, -1)]
    computes = (1, 1, 1)
    assert makespan(computes, flows, by_layer) == 5.0
    assert least_makespan(computes, flows) == 4
