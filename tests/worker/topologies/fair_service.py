"""What orders that share service among tenants are asked to do, and what comes of it."""

from collections import Counter
from random import Random

from hmas.worker.agent.order.topologies import Topology
from tests.worker.builders import entry, request

LARGEST = 400 + 2 * 50  # service tokens of the largest request in `shares_of_service`


def shares_of_service(topology: Topology, weights: tuple[float, float, float]) -> list[float]:
    """Returns the service over weight that three tenants get, which always have requests of different sizes waiting,
    none of which takes what was predicted."""
    rng = Random(7)
    served = dict.fromkeys(("a", "b", "c"), 0.0)
    for seq in range(3000):
        tenant = "abc"[seq % 3]
        size = {"a": 20, "b": 100, "c": 400}[tenant]
        made = request(f"r{seq}", tenant=tenant, prompt_tokens=rng.randint(1, size), weight=weights[seq % 3])
        topology.push(entry(seq, made, tokens=float(rng.randint(1, 50))))
    for _ in range(1000):
        head = topology.pop()
        assert head is not None
        real = head.request.prompt_tokens + 2.0 * rng.randint(1, 50)
        topology.on_served(head, real, True)
        served[head.request.tenant] += real
    return [served[t] / w for t, w in zip("abc", weights, strict=True)]


def turns_beside_a_newcomer(topology: Topology) -> int:
    """Returns how many of 60 turns tenant a gets that was served alone before, beside one that comes then."""
    for seq in range(400):
        topology.push(entry(seq, request(f"a{seq}", tenant="a")))
    _turns(topology, 200)
    for seq in range(400, 500):
        topology.push(entry(seq, request(f"b{seq}", tenant="b")))
    return _turns(topology, 60)["a"]


def turns_of_one_and_of_many_flows(topology: Topology) -> tuple[int, int]:
    """Returns how many of 200 turns a tenant with one flow gets, and one that opens a flow for each request."""
    for seq in range(600):
        tenant, flow = ("many", f"f{seq}") if seq % 2 else ("one", "")
        topology.push(entry(seq, request(f"r{seq}", tenant=tenant, flow=flow)))
    turns = _turns(topology, 200)
    return turns["one"], turns["many"]


def order_after_a_retry(topology: Topology) -> list[str]:
    """Returns the order of what is left of r0 to r4 once r0 and r1 were taken, and r0 came back without its engine."""
    entries = [entry(i, request(f"r{i}")) for i in range(5)]
    for each in entries:
        topology.push(each)
    first = topology.pop()
    assert first is entries[0]
    topology.pop()
    topology.on_served(first, 0.0, True)
    first.tried = ("e1#1",)
    topology.push(first)
    return [head.request.id for head in iter(topology.pop, None)]


def _turns(topology: Topology, count: int) -> Counter[str]:
    """Serves `count` requests, each with just the service that was predicted; returns how many of each tenant."""
    tenants: Counter[str] = Counter()
    for _ in range(count):
        head = topology.pop()
        assert head is not None
        topology.on_served(head, head.service, True)
        tenants[head.request.tenant] += 1
    return tenants
