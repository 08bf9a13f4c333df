"""The ops port: who may read metrics."""

import httpx
import pytest

from hmas.runtime.ops import ops_server


@pytest.mark.parametrize("path", ["/metrics", "/metrics/", "//metrics", "/anything"])
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic x", "Bearer secre", "Bearer secret "])
async def test_with_a_token_only_who_presents_it_sees_more_than_health(path: str, given: str) -> None:
    server = ops_server("127.0.0.1", 0, lambda: True, token="secret")
    port = await server.start()
    headers = {"authorization": given.strip()} if given else {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.get(path, headers=headers)
        right = await client.get("/metrics", headers={"authorization": "Bearer secret"})
        lives = [(await client.get(page)).status_code for page in ("/health", "/ready")]
    await server.stop()
    wanted = 200 if given.strip() == "Bearer secret" and path == "/metrics" else 401
    assert answer.status_code == wanted or (given.strip() == "Bearer secret" and answer.status_code in (307, 404))
    if wanted == 401:
        assert "python_info" not in answer.text
    assert "python_info" in right.text
    assert lives == [200, 200]


async def test_without_a_token_nobody_is_asked() -> None:
    server = ops_server("127.0.0.1", 0, lambda: False)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert "python_info" in (await client.get("/metrics")).text
        assert (await client.get("/ready")).status_code == 503
    await server.stop()
