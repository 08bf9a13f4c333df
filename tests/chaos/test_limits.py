"""N_run by the engines' own counts while processes die and freeze at random, and slots whose clients leave.

Two workers share four engines with slots for few; the load wants more of them than there are. Statera and meta stand
still, so that N_run is the workers' static one. Times are printed; the bounds on them are time-outs at twice the goal.
"""

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.chaos.counts import SAMPLE_S, CountLog, Excess, excesses, in_engine
from tests.chaos.hurt import EngineLog, frozen, page
from tests.chaos.leaving import LeavingClient
from tests.chaos.load import Load
from tests.chaos.second_gateway import TwoGateways, with_second_gateway
from tests.conftest import eventually

pytestmark = pytest.mark.chaos
SOAK = "HMAS_SOAK" in os.environ
KILLING_S = 180.0 if SOAK else 8.0
N_RUN, ENGINES = 8, 4
GATEWAYS, WORKERS, BOTH = ("gateway", "gateway-2"), ("worker-1", "worker-2"), "both workers"
SETTLED_S = 2 * 0.5 + SAMPLE_S  # what a party did before it was lost shows after two scrapes
QUIET_S = 1.5  # of load between two rounds, in which nothing excuses an excess


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[TwoGateways]:
    folder, args = tmp_path_factory.mktemp("narrow"), ("--replay", "--emulated", str(ENGINES), "--workers", "2")
    with (
        start_mesh(folder, *args, env={"HMAS_STATIC_N_RUN": str(N_RUN), "HMAS_TUPLE_VALID_FOR_S": "3"}) as mesh,
        with_second_gateway(mesh) as two,
        frozen(two, "statera"),
        frozen(two, "meta"),
    ):
        static = ENGINES * N_RUN
        asyncio.run(eventually(lambda: two.worker_metric("hmas_worker_engine_n_run") == static, 40))
        yield two


# --- N_run


def deck(rng: Random) -> Iterator[tuple[str, str]]:
    """All kinds of faults in random order, again and again."""
    killed = [*GATEWAYS, *WORKERS, BOTH, "nats", "engine-1", "engine-2"]
    faults = [("kill", name) for name in killed] + [("freeze", name) for name in (*GATEWAYS, *WORKERS, "engine-3")]
    while True:
        yield from rng.sample(faults, len(faults))


@dataclass
class Faults:
    """What was done to the mesh, and the times in which that, or what followed from it, may overfill an engine."""

    mesh: TwoGateways
    rng: Random
    done: list[str] = field(default_factory=list)
    excused: list[tuple[float, float, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._deck = deck(self.rng)

    async def round(self) -> None:
        """One or two faults at once; ends when the mesh is whole and settled again."""
        begun_s, faults = time.monotonic(), [next(self._deck) for _ in range(self.rng.choice([1, 2]))]
        await asyncio.gather(*(self._one(kind, target) for kind, target in faults))
        await self.mesh.whole()
        await asyncio.sleep(SETTLED_S)
        if any(target in (*GATEWAYS, *WORKERS, BOTH) for _, target in faults):
            self.excused.append((begun_s, time.monotonic(), " and ".join(f"{kind} {name}" for kind, name in faults)))

    async def _one(self, kind: str, target: str) -> None:
        self.done.append(f"{kind} {target}")
        await asyncio.sleep(self.rng.uniform(0.0, 0.5))
        if kind == "freeze":
            with frozen(self.mesh, target):
                await asyncio.sleep(self.rng.uniform(0.5, 5.0))
            return
        for name in WORKERS if target == BOTH else (target,):
            self.mesh.kill(name)

    def excuse(self, excess: Excess) -> str | None:
        """Returns the faults of the round in which all began that began on the full engine; None if there is none."""
        for from_s, until_s, what in self.excused:
            if all(from_s <= at_s <= until_s + SAMPLE_S for at_s in excess.begun):
                return what
        return None


@pytest.mark.long
@pytest.mark.timeout(400)
async def test_engines_are_not_overrun_whoever_dies(narrow: TwoGateways) -> None:
    seed = 20261123
    faults, started_s = Faults(narrow, Random(seed)), time.monotonic()
    with CountLog(narrow.engines) as counts:
        async with (
            Load(narrow.urls[0], rate=3.6, output_tokens=250, streams=1) as one,
            Load(narrow.urls[1], rate=3.6, output_tokens=250, streams=1) as other,
        ):
            while time.monotonic() < started_s + KILLING_S:
                await asyncio.sleep(QUIET_S)
                await faults.round()
            await asyncio.sleep(QUIET_S)
            took_s = time.monotonic() - started_s
    ends = one.ends + other.ends
    found = [(excess, faults.excuse(excess)) for excess in counts.excesses(N_RUN)]
    excused_s = sum(until_s - from_s for from_s, until_s, _ in faults.excused)
    print(f"{', '.join(f'{n} x {what}' for what, n in Counter(faults.done).most_common())} in {took_s:.0f} s, of which "
          f"{took_s - excused_s:.0f} s excuse nothing; {', '.join(f'{n} {end}' for end, n in ends.most_common())}; "
          f"at most {counts.most()} in an engine, N_run {N_RUN}; {len(found)} times more")  # fmt: skip
    for excess, excuse in found:
        print(f"  {excess} by {excuse}")
    assert counts.most() >= N_RUN, "the load filled no engine"
    assert [excess for excess, excuse in found if excuse is None] == []
    assert max((excess.most for excess, _ in found), default=0) <= N_RUN
    lost = {"connection"} if "kill gateway" in " ".join(faults.done) else set()
    begun = {"error:engine_error"} if "engine-" in " ".join(faults.done) else set()
    assert set(ends) <= {"finished"} | lost | begun, (ends, one.details, other.details)


def test_an_excess_is_found() -> None:
    samples = [(1.0, 7), (2.0, 9), (3.0, 11), (4.0, 10), (5.0, 8), (6.0, 8), (7.0, 9)]
    assert excesses("e", samples, 8) == [
        Excess("e", 2.0, 5.0, 3, (2.0, 3.0)), Excess("e", 7.0, 7.0, 1, (7.0,)),
    ]  # fmt: skip
    assert excesses("e", samples, 11) == []


# --- clients that leave


GOAL_S = 1.0
SLOTS = ENGINES * N_RUN


def in_engines(narrow: TwoGateways) -> int:
    return sum(in_engine(page(url)) for url in narrow.engines)


def queued(narrow: TwoGateways) -> float:
    return narrow.worker_metric("hmas_worker_queued_requests")


@asynccontextmanager
async def full(narrow: TwoGateways) -> AsyncIterator[None]:
    """Fills every slot by the second gateway; at the end their clients leave. Gateways balance work and not numbers, so
    that a few wait at one worker before the last slot of the other is taken."""
    clients: list[LeavingClient] = []
    try:
        while in_engines(narrow) < SLOTS:
            assert len(clients) < 2 * SLOTS, "a slot was lost"
            clients += [await LeavingClient.asks(narrow.urls[1], stream=False, output_tokens=2000) for _ in range(8)]
            await asyncio.sleep(0.2)
        await eventually(lambda: in_engines(narrow) + queued(narrow) == len(clients))
        yield
    finally:
        for client in clients:
            client.leave()
        await eventually(lambda: in_engines(narrow) == 0)


async def left(narrow: TwoGateways, phase: str, *, stream: bool) -> float:
    """Returns the seconds from a client's leaving in `phase` until workers and engines have nothing of its request.
    Raises TimeoutError after twice the goal."""
    url = narrow.urls[0]

    def is_free() -> bool:
        return in_engines(narrow) == queued(narrow) == 0

    async def gone(is_gone: Callable[[], bool]) -> float:
        left_s = time.monotonic()
        await eventually(is_gone, 2 * GOAL_S)
        return time.monotonic() - left_s

    match phase:
        case "half its body sent":
            client = await LeavingClient.asks(url, stream=stream, sent=0.5)
            await asyncio.sleep(0.1)
        case "queued":
            async with full(narrow):
                others = queued(narrow)
                client = await LeavingClient.asks(url, stream=stream)
                await eventually(lambda: queued(narrow) == others + 1)
                client.leave()
                return await gone(lambda: queued(narrow) == others)
        case "granted, not sent":
            with ExitStack() as until_granted:
                async with full(narrow):
                    others = queued(narrow)
                    client = await LeavingClient.asks(url, stream=stream)
                    await eventually(lambda: queued(narrow) == others + 1)
                    until_granted.enter_context(frozen(narrow, "gateway"))
                await eventually(lambda: queued(narrow) == 0)
                client.leave()
        case "prefill":
            client = await LeavingClient.asks(url, stream=stream, words=14_000)
            await eventually(lambda: in_engines(narrow) == 1)
        case "answering":
            client = await LeavingClient.asks(url, stream=stream)
            await (client.has_tokens(5) if stream else asyncio.sleep(0.5))
            assert in_engines(narrow) == 1
    client.leave()
    return await gone(is_free)


@pytest.mark.long
@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_slot(narrow: TwoGateways, stream: bool) -> None:
    await narrow.whole()
    await eventually(lambda: in_engines(narrow) == queued(narrow) == 0, 30)
    log = EngineLog(narrow.engines)
    for phase in ("half its body sent", "queued", "granted, not sent", "prefill", "answering"):
        took_s = await left(narrow, phase, stream=stream)
        print(f"{'streamed' if stream else 'plain'}, {phase}: free {took_s:.2f} s after the client left")
    async with full(narrow):
        pass  # no slot was lost
    assert sum(log.served().values()) == 0
