"""API keys are rotated and revoked again and again while their tenant sends, beside somebody who tries wrong ones: no
request with a key in force is refused, and a key that is not is refused from a second later on."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from hmas.gateway.tenants.keys import make_key, revoke_key, rotate_key

pytestmark = [pytest.mark.chaos, pytest.mark.long]
ROTATIONS = 12
GRACE_S = 6.0
KNOWN_S = 3.0  # in which a busy gateway has read the file; it looks twice a second
SENDERS, STRANGERS = 6, 4
BODY = {"model": "emulated", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("rotation")
    file = directory / "tenants.yaml"
    file.write_text("tenants:\n  chat: {}\n")
    made = make_key(file, "chat")
    with start_mesh(directory / "mesh", "--tenants", str(file), "--emulated", "1", "--replay") as running:
        yield running, file, made


class Senders:
    """Send with the key in use, or with wrong ones, and count what they get."""

    def __init__(self, client: httpx.AsyncClient, key: str) -> None:
        self._client, self.key = client, key
        self.good: Counter[int] = Counter()
        self.wrong: Counter[int] = Counter()

    async def status(self, key: str) -> int:
        answer = await self._client.post("/v1/chat/completions", json=BODY, headers={"x-api-key": key})
        return answer.status_code

    async def send(self) -> None:
        while True:
            self.good[await self.status(self.key)] += 1

    async def guess(self) -> None:
        while True:
            self.wrong[await self.status(f"hmas-{secrets.token_urlsafe(32)}")] += 1
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def running(self) -> Any:
        tasks = [asyncio.create_task(self.send()) for _ in range(SENDERS)]
        tasks += [asyncio.create_task(self.guess()) for _ in range(STRANGERS)]
        try:
            yield
            assert not [task for task in tasks if task.done()]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_keys_rotate_under_load(guarded: Any) -> None:
    mesh, file, made = guarded
    gone: list[str] = []
    async with httpx.AsyncClient(base_url=mesh.url, timeout=60) as client:
        senders = Senders(client, made.key)
        async with senders.running():
            for number in range(ROTATIONS):
                new = await asyncio.to_thread(rotate_key, file, made.id, GRACE_S)
                began_s = time.monotonic()
                while await senders.status(new.key) != 200:
                    assert time.monotonic() - began_s < KNOWN_S
                    await asyncio.sleep(0.05)
                senders.key, old, made = new.key, made, new
                if number % 2:
                    await asyncio.to_thread(revoke_key, file, old.id)
                    await asyncio.sleep(KNOWN_S)
                    assert await senders.status(old.key) == 401
                gone.append(old.key)
            await asyncio.sleep(GRACE_S)
            for key in gone:
                assert await senders.status(key) == 401
    print(f"{ROTATIONS} rotations: {dict(senders.good)} with keys in force, {dict(senders.wrong)} with wrong ones")
    assert senders.good.keys() == {200}
    assert senders.wrong.keys() == {401}
    log = (mesh.directory / "logs" / "gateway.log").read_text()
    assert "tenants_rejected" not in log
    assert "hmas-" not in log  # no key
