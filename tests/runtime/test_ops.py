"""The ops port: who may read metrics."""

from pathlib import Path

import httpx
import pytest

from hmas.runtime.extras import CannotStart
from hmas.runtime.ops import ops_server
from hmas.runtime.settings import RuntimeSettings

WITH_THE_TOKEN = {"/metrics": 200, "/metrics/": 307, "//metrics": 404, "/anything": 404}


@pytest.mark.parametrize("path", WITH_THE_TOKEN)
@pytest.mark.parametrize("given", ["", "Bearer", "Bearer wrong", "Basic x", "Bearer secre", "Bearer secret"])
async def test_with_a_token_only_who_presents_it_sees_more_than_health(path: str, given: str) -> None:
    server = ops_server("127.0.0.1", 0, lambda: True, token="secret")
    port = await server.start()
    headers = {"authorization": given} if given else {}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.get(path, headers=headers)
        right = await client.get("/metrics", headers={"authorization": "Bearer secret"})
        lives = [(await client.get(page)).status_code for page in ("/health", "/ready")]
    await server.stop()
    wanted = WITH_THE_TOKEN[path] if given == "Bearer secret" else 401
    assert answer.status_code == wanted
    assert ("python_info" in answer.text) is (wanted == 200)
    assert "python_info" in right.text
    assert lives == [200, 200]


async def test_without_a_token_nobody_is_asked() -> None:
    server = ops_server("127.0.0.1", 0, lambda: False)
    port = await server.start()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        assert "python_info" in (await client.get("/metrics")).text
        assert (await client.get("/ready")).status_code == 503
    await server.stop()


def test_a_file_without_a_token_is_no_licence_to_read(tmp_path: Path) -> None:
    file = tmp_path / "ops"
    for text in ("", " \n"):
        file.write_text(text)
        with pytest.raises(CannotStart, match=r"/ops is empty: put a token"):
            RuntimeSettings(ops_token_file=file).ops_token()
    file.write_text(" secret\n")
    assert RuntimeSettings(ops_token_file=file).ops_token() == "secret"
    assert RuntimeSettings().ops_token() == ""
