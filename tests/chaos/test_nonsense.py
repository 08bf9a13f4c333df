"""Nonsense over the real NATS, on every subject: no process dies, none logs a traceback, and what is genuine is in
force afterwards."""

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import nats
import pytest
from nats.aio.client import Client

from hmas.contracts.routes import ROUTES, Role
from hmas.wire import limits
from hmas.wire.permissions import OPERATOR, USERS
from hmas.wire.subjects import QUERY_EFFECTS, QUERY_WHY, pattern, token
from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import OPS_HEADERS, eventually
from tests.fuzz import mutations
from tests.fuzz.mutations import Genuine, payload

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.long]
PAYLOADS = 20_000 if "HMAS_SOAK" in os.environ else 2_000
PER_S = 400
BUGS = ("Traceback", "step_failed", "handler_failed", "message_failed", "nats_client_failed", "gateway_message_failed")
LONGEST_S = 60.0  # for which a stranger's decision may hold


def pids(mesh: Any) -> dict[str, int]:
    return {name: mesh.pid(name) for name in ("nats", "gateway", *mesh.state["ops_urls"])}


def rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def metas_topology(url: str) -> str:
    """The topology that meta last decided for the mesh's own pool."""
    text = httpx.get(f"{url}/metrics", headers=OPS_HEADERS.get(url), timeout=5).text
    found = re.search(r'hmas_meta_topology{pool="emulated",topology="(\w+)"} 1.0', text)
    return found[1] if found else ""


def tracebacks(mesh: Any) -> list[str]:
    logs = (mesh.directory / "logs").glob("*.log")
    return [f"{log.name}: {line}" for log in logs for line in log.read_text().splitlines()
            if any(word in line for word in BUGS)]  # fmt: skip


@asynccontextmanager
async def users_of(mesh: Any) -> AsyncIterator[dict[str, Client]]:
    """A connection to NATS as each of its users: nonsense comes from whoever may publish there."""
    secrets = mesh.directory / "secrets"
    clients = {
        user.name: await nats.connect(
            mesh.state["nats_url"], user=user.name, password=(secrets / f"nats-{user.name}").read_text()
        )
        for user in USERS
    }
    try:
        yield clients
    finally:
        for client in clients.values():
            await client.close()


def user_of(role: Role) -> str:
    return role.value if role.value in {user.name for user in USERS} else OPERATOR


async def test_nonsense_on_every_subject(mesh: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, genuine_names = (
        Random(23),
        {"worker": ("worker-1", "worker-2"), "pool": ("emulated",), "gateway": ("gateway",)},
    )
    monkeypatch.setattr(mutations, "NAMES", {**mutations.NAMES, **genuine_names})
    if "HMAS_SOAK" not in os.environ:  # what breaks no rule holds for 5 s here, so that the end is soon reached
        monkeypatch.setattr(limits, "RANGES", {**limits.RANGES, "valid_for_s": limits.Range(0.0, 5.0, above=True)})
    genuine, urls = Genuine(rng), mesh.state["ops_urls"]
    await eventually(
        lambda: all(metric(urls[w], "hmas_worker_control_expired") == 0 for w in ("worker-1", "worker-2")), 30
    )
    before, said_before = pids(mesh), set(tracebacks(mesh))
    memory = {}
    async with users_of(mesh) as users, Load(mesh.url, rate=2) as load:
        started_s = time.monotonic()
        for i in range(PAYLOADS):
            route = rng.choice(ROUTES)
            names = mutations.NAMES.get(route.about, ("a",))
            subject = pattern(route, token(rng.choice(names))) if route.about else pattern(route)
            await users[user_of(rng.choice(route.publishers))].publish(
                subject, payload(genuine, rng, route.message)[: 2**19]
            )
            if i % 50 == 0:
                for query in (QUERY_WHY, QUERY_EFFECTS):
                    await users[OPERATOR].publish(query, rng.randbytes(rng.randrange(40)), reply="nobody.listens")
            if i == PAYLOADS // 2:
                memory = {name: rss_bytes(pid) for name, pid in before.items()}
            await asyncio.sleep(max(0.0, started_s + i / PER_S - time.monotonic()))
        for client in users.values():
            await client.flush()
    assert load.lost == 0, (load.ends, load.details)
    grown = {name: (rss_bytes(pid) - memory[name]) / 2**20 for name, pid in before.items()}
    print("MiB grown in the second half:", {name: round(mib, 1) for name, mib in grown.items()})
    assert pids(mesh) == before
    assert max(grown.values()) < 64
    assert set(tracebacks(mesh)) == said_before
    dropped = {name: metric(url, "hmas_wire_malformed_total") for name, url in urls.items()}
    print(f"{PAYLOADS} payloads; dropped as malformed:", dropped)
    assert all(
        dropped[name] > 0 for name in ("gateway", "worker-1", "qos", "meta", "statera", "prediction", "perception")
    )

    def genuine_again() -> bool:
        decided = metas_topology(urls["meta"])
        return bool(decided) and all(
            metric(urls[worker], "hmas_worker_topology", topology=decided) == 1
            and metric(urls[worker], "hmas_worker_control_expired") == 0
            for worker in ("worker-1", "worker-2")
        )

    ended_s = time.monotonic()
    await eventually(genuine_again, 2 * LONGEST_S)
    print(f"the genuine decision is in force {time.monotonic() - ended_s:.1f} s later")
    async with Load(mesh.url) as after:
        await asyncio.sleep(3)
    assert set(after.ends) == {"finished"}, (after.ends, after.details)
