"""Rolling restarts: each part ends by SIGTERM under load and starts again, and no client sees a broken answer."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.chaos.hurt import EngineLog, is_ready
from tests.chaos.load import Load
from tests.chaos.second_gateway import TwoGateways, with_second_gateway

pytestmark = [pytest.mark.chaos, pytest.mark.long]
SOAK = "HMAS_SOAK" in os.environ
BEFORE_S, AFTER_S = 2.0, 3.0 if SOAK else 0.5  # of load before the first restart, and after each
WHO_DECIDES = ("worker-1", "worker-2", "nats", "qos", "meta", "statera", "perception", "prediction")
ENGINES = ("engine-1", "engine-2")
CARRY: list[tuple[str, ...]] = [("gateway",), ("worker-1",), WHO_DECIDES[2:]]
if SOAK:
    CARRY = [(name,) for name in ("gateway", "gateway-2", *WHO_DECIDES)]


@pytest.fixture(scope="module")
def two(mesh: Any) -> Iterator[TwoGateways]:
    with with_second_gateway(mesh) as two:
        yield two


async def restart(two: TwoGateways, names: tuple[str, ...]) -> float:
    """Ends the processes by SIGTERM; returns the seconds until they are there again and the mesh is whole."""
    begun_s, old = time.monotonic(), {name: two.pid(name) for name in names}

    def are_back() -> bool:
        try:
            there = all(two.pid(name) != pid for name, pid in old.items())
        except LookupError:
            return False
        return there and all(is_ready(two.ops_urls[name]) for name in names if name in two.ops_urls)

    for name in names:
        two.kill(name, signal.SIGTERM)
    async with asyncio.timeout(60):
        while not await asyncio.to_thread(are_back):
            await asyncio.sleep(0.1)
    await two.whole()
    return time.monotonic() - begun_s


async def restarted(two: TwoGateways, steps: list[tuple[str, ...]]) -> Load:
    async with Load(two.urls[0], others=two.urls[1:], output_tokens=100) as load:
        await asyncio.sleep(BEFORE_S)
        for names in steps:
            took_s = await restart(two, names)
            print(f"SIGTERM {', '.join(names)}: whole again after {took_s:.1f} s; {dict(load.ends)}")
            await asyncio.sleep(AFTER_S)
    waits = [each.headed_s - each.sent_s for each in load.answered]
    print(f"rolling restarts: {dict(load.ends)}; longest wait for an answer's begin {max(waits):.2f} s; "
          f"{load.resets} connections closed as a request came, which went to the other gateway")  # fmt: skip
    return load


@pytest.mark.timeout(400)
async def test_rolling_restarts_break_no_answer(two: TwoGateways) -> None:
    """Everything but the engines, whose own books tell that nothing ran twice."""
    log = EngineLog(two.engines)
    load = await restarted(two, CARRY)
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
    assert log.served() == load.served
    assert log.aborted() == 0


@pytest.mark.skipif(not SOAK, reason="`make soak`")
async def test_engines_that_end_by_sigterm_finish_what_they_run(two: TwoGateways) -> None:
    load = await restarted(two, [(name,) for name in ENGINES])
    assert set(load.ends) == {"finished"}, (load.ends, load.details)
