"""A tenant has its limit, and not several times as much, through several gateways. HMAS_SOAK: 1, 2 and 4 of them."""

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import httpx
import pytest

from tests.chaos.hurt import is_ready
from tests.chaos.second_gateway import SecondGateway
from tests.conftest import HMAS, eventually, running_mesh
from tests.e2e.test_tenants import make_key

pytestmark = [pytest.mark.chaos, pytest.mark.long]
SOAK = "HMAS_SOAK" in os.environ
PER_MIN, RATE_RPS, SHARE = 60, 10.0, 0.85  # of the requests that come to the first gateway
SECONDS = 60.0 if SOAK else 20.0
GATEWAYS = (1, 2, 4) if SOAK else (2,)
BODY = {"model": "emulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}


@dataclass
class Gateways:
    """Of one mesh: their URLs, those of their ops ports, and a tenant's key for each number of gateways."""

    urls: list[str]
    ops_urls: list[str]
    keys: dict[int, str]


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateways]:
    directory: Path = tmp_path_factory.mktemp("shared")
    file = directory / "tenants.yaml"
    file.write_text("tenants:\n" + "".join(f"  over-{n}:\n    requests_per_min: {PER_MIN}\n" for n in GATEWAYS))
    keys = {n: make_key(HMAS, f"over-{n}", file)[0] for n in GATEWAYS}
    with ExitStack() as stack:
        args = ("--tenants", str(file), "--emulated", "1", "--replay")
        mesh = stack.enter_context(running_mesh(directory / "mesh", *args))
        more = [SecondGateway(mesh, f"gateway-{i}") for i in range(2, 1 + max(GATEWAYS))]
        for each in more:
            stack.callback(each.close)
        yield Gateways([mesh.url, *(g.url for g in more)], [mesh.gateway_ops_url, *(g.ops_url for g in more)], keys)


def are_ready(ops_urls: list[str]) -> bool:
    try:
        return all(map(is_ready, ops_urls))
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("n", GATEWAYS)
async def test_a_rate_holds_over_gateways_under_uneven_load(gateways: Gateways, n: int) -> None:
    await eventually(lambda: are_ready(gateways.ops_urls), timeout_s=60)
    draw, taken = Random(1), Counter[tuple[int, int]]()

    async def ask(client: httpx.AsyncClient, which: int) -> None:
        answer = await client.post(f"{gateways.urls[which]}/v1/chat/completions", json=BODY, timeout=60)
        taken[which, answer.status_code] += 1

    async with httpx.AsyncClient(headers={"authorization": f"Bearer {gateways.keys[n]}"}) as client:
        started_s = time.monotonic()
        async with asyncio.TaskGroup() as group:
            while (now_s := time.monotonic() - started_s) < SECONDS:
                first = n == 1 or draw.random() < SHARE
                group.create_task(ask(client, 0 if first else draw.randrange(1, n)))
                await asyncio.sleep(draw.expovariate(RATE_RPS))
    given = PER_MIN + PER_MIN * now_s / 60.0  # a minute's worth to begin with
    asked, accepted = taken.total(), sum(count for (_, status), count in taken.items() if status == 200)
    print(f"{n} gateways: {accepted} of {asked} accepted in {now_s:.0f} s; one would accept {given:.0f}; {dict(taken)}")
    assert {status for _, status in taken} <= {200, 429}
    assert accepted == pytest.approx(given, rel=0.05)
    assert asked > 2 * given
