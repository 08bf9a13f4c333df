"""What each tenant was served of late, beside a plain sum."""

from collections import defaultdict
from math import exp
from random import Random

import pytest

from hmas.worker.agent.order.served_shares import ServedShares, ServedSharesConfig


@pytest.mark.parametrize("seed", range(4))
def test_what_tenants_were_served_is_forgotten_with_time(seed: int) -> None:
    """By definition: each tenant's decayed tokens over those of all, over its weight in those of all that are known."""
    rng, window_s = Random(seed), 30.0
    told = ServedShares(ServedSharesConfig(window_s=window_s, silent_s=120.0, max_tenants=100))
    events: list[tuple[float, str, float]] = []
    weights = {"a": 1.0, "b": 2.0, "c": 0.5}
    now_s = 0.0
    for _ in range(200):
        now_s += rng.choice((0.0, 0.5, 7.0, 20.0))
        tenant, tokens = rng.choice("aabc"), float(rng.randrange(1, 1000))
        told.add(now_s, tenant, weights[tenant], tokens)
        events.append((now_s, tenant, tokens))
        last = {name: at_s for at_s, name, _ in events}
        gone = {name for name, at_s in last.items() if now_s - at_s >= 120.0}
        events = [each for each in events if each[1] not in gone]
        sums: defaultdict[str, float] = defaultdict(float)
        for at_s, name, amount in events:
            sums[name] += amount * exp((at_s - now_s) / window_s)
        total, weight = sum(sums.values()), sum(weights[name] for name in sums)
        for name, own in sums.items():
            assert told.excess(name) == pytest.approx(own / total * weight / weights[name])
    assert told.excess("nobody") == 0.0


def test_of_too_many_tenants_the_longest_silent_is_forgotten() -> None:
    told = ServedShares(ServedSharesConfig(max_tenants=2))
    for at_s, tenant in enumerate("abab"):
        told.add(float(at_s), tenant, 1.0, 100.0)
    told.add(3.0, "c", 1.0, 100.0)
    assert told.excess("a") == 0.0
    assert told.excess("b") > 0.0
    told.add(3.0, "b", 3.0, 0.0)  # its weight has changed
    b, c = 100.0 + 100.0 * exp(-2.0 / 30.0), 100.0
    assert told.excess("c") == pytest.approx(c / (b + c) * 4.0 / 1.0)
