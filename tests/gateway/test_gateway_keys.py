"""What a key is good for: its end, the bounds of its tenant's clients, and what they may not send."""

import asyncio
from pathlib import Path

import orjson
import pytest

from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.gateway.tenants.keys import make_key, revoke_key
from hmas.gateway.tenants.store import TenantStore
from tests.gateway.gateway_harness import (
    CHAT,
    DONE,
    HEAD,
    PATH,
    PLAIN,
    STREAMED,
    body,
    client,
    error_of,
    event,
    gateway,
    silence,
)
from tests.worker.adapters.scripted_engine import Peer


async def a_token_and_silence(peer: Peer) -> None:
    await peer.begin_chunks()
    await peer.chunk(event(0))
    await silence(peer)


async def test_a_revoked_key_ends_its_open_streams_and_no_others(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    revoked, kept = make_key(path, "acme"), make_key(path, "acme")
    store = TenantStore(path)
    async with gateway(tenants_file=path, behave=a_token_and_silence) as g:
        streams = []
        for key in (revoked, kept):
            reader, writer = await asyncio.open_connection("127.0.0.1", g.port)
            data = body(stream=True)
            writer.write(HEAD + b"authorization: Bearer %b\r\n" % key.key.encode())
            writer.write(b"content-length: %d\r\n\r\n" % len(data) + data)
            await reader.readuntil(event(0)[-20:])
            streams.append((reader, writer))
        g.shell.end_keys(store.holds)
        assert g.shell.live == 2
        revoke_key(path, revoked.id)
        assert store.poll()
        g.shell.end_keys(store.holds)
        assert g.shell.live == 1
        told = await streams[0][0].readuntil(DONE)
        assert b'"reason":"unauthenticated"' in told
        assert b"revoked or has expired" in told
        assert [ended.outcome for ended in g.workers.of(Ended)] == [Outcome.UNAUTHENTICATED]
        for _, writer in streams:
            writer.close()


async def test_a_waiting_request_of_a_revoked_key_gets_a_401(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    key, _ = make_key(path, "acme"), make_key(path, "acme")
    store = TenantStore(path)
    async with gateway(tenants_file=path, grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=CHAT, headers={"authorization": f"Bearer {key.key}"}))
        await g.until(lambda: bool(g.workers.submits))
        revoke_key(path, key.id)
        assert store.poll()
        g.shell.end_keys(store.holds)
        response = await task
        assert (response.status_code, error_of(response)["reason"]) == (401, "unauthenticated")
        assert g.shell.live == 0


async def test_without_keys_nothing_is_ended() -> None:
    async with gateway(grants=False) as g, client(g) as c:
        task = asyncio.create_task(c.post(PATH, json=CHAT))
        await g.until(lambda: bool(g.workers.submits))
        g.shell.end_keys(TenantStore(None).holds)
        g.workers.grant(*g.workers.submits[0])
        assert (await task).content == PLAIN


@pytest.mark.parametrize("sent", [CHAT, STREAMED, {**CHAT, "model": "nobody"}])
async def test_a_clamped_slo_is_told(sent: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {acme: {slo_min: {ttft_ms: 500, tpot_ms: 20}}}")
    key = {"authorization": f"Bearer {make_key(path, 'acme').key}"}
    async with gateway(tenants_file=path) as g, client(g) as c:
        response = await c.post(PATH, json=sent, headers={**key, "x-slo-ttft-ms": "1", "x-slo-tpot-ms": "50"})
        assert response.headers["x-hmas-slo-clamped"] == "ttft_ms=500"
        if response.status_code == 200:
            assert g.workers.submits[0][1].request.slo.ttft_s == 0.5
        fine = await c.post(PATH, json=sent, headers={**key, "x-slo-ttft-ms": "501"})
        assert "x-hmas-slo-clamped" not in fine.headers


async def test_fields_that_steer_engines_need_a_tenant_that_may(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {router: {allowed_body_fields: [kv_transfer_params]}}")
    keys = {tenant: {"authorization": f"Bearer {make_key(path, tenant).key}"} for tenant in ("acme", "router")}
    sent = {**CHAT, "kv_transfer_params": {"remote_host": "10.0.0.9"}}
    async with gateway(tenants_file=path) as g, client(g) as c:
        refused = await c.post(PATH, json=sent, headers=keys["acme"])
        assert (refused.status_code, error_of(refused)["param"]) == (400, "kv_transfer_params")
        assert "allowed_body_fields" in error_of(refused)["message"]
        assert not g.engine.requests
        assert (await c.post(PATH, json=sent, headers=keys["router"])).content == PLAIN
        assert orjson.loads(g.engine.requests[0].body)["kv_transfer_params"] == {"remote_host": "10.0.0.9"}
        bootstrap = await c.post(PATH, json={**CHAT, "bootstrap_room": 7}, headers=keys["router"])
        assert bootstrap.status_code == 400


async def test_without_keys_they_are_refused_too() -> None:
    async with gateway() as g, client(g) as c:
        assert (await c.post(PATH, json={**CHAT, "cache_salt": "x"})).status_code == 400
