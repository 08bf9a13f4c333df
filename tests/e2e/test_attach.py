"""`hmas up` before engines that somebody else starts: of several models, and before they are up."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from hmas.mesh.ports import free_port
from tests.chaos.hurt import is_ready, metric
from tests.conftest import RunningMesh, eventually
from tests.engine_farm import farm_in, is_healthy

pytestmark = pytest.mark.e2e


def ask(mesh: Any, model: str) -> str:
    with openai.OpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=30) as client:
        messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Hello"}]
        return client.chat.completions.create(model=model, messages=messages, max_tokens=2).model


def models(mesh: RunningMesh) -> list[str]:
    return [card["id"] for card in httpx.get(f"{mesh.url}/v1/models").json()["data"]]


def served(url: str) -> float:
    return metric(url, "vllm:request_success_total")


def waits(mesh: RunningMesh) -> bool:
    return "waiting: the engine http" in mesh.output.read_text()


async def test_engines_of_two_models_one_of_them_late(tmp_path: Path, start_mesh: Any) -> None:
    with farm_in(tmp_path) as farm:
        (qwen,), (llama,) = farm.start(1, "qwen"), farm.start(1, "llama")
        late = f"http://127.0.0.1:{free_port()}"
        await eventually(lambda: is_healthy(qwen) and is_healthy(llama), 60)
        with start_mesh(tmp_path / "mesh", "--engine", qwen, "--engine", llama, "--engine", late) as mesh:
            assert models(mesh) == ["llama", "qwen"]
            assert [ask(mesh, model) for model in ("qwen", "llama", "llama")] == ["qwen", "llama", "llama"]
            assert (served(qwen), served(llama)) == (1, 2)
            with pytest.raises(openai.NotFoundError, match="the model `gpt` does not exist"):
                ask(mesh, "gpt")
            assert f"{late} cannot be used yet" in mesh.output.read_text()
            farm.start(1, "third", int(late.rpartition(":")[2]))
            await eventually(lambda: models(mesh) == ["llama", "qwen", "third"], 60)
            assert [ask(mesh, model) for model in ("qwen", "third", "third")] == ["qwen", "third", "third"]
            assert (served(qwen), served(llama), served(late)) == (2, 2, 2)
            assert f"{late} serves third" in mesh.output.read_text()


@pytest.mark.long
async def test_an_engine_may_come_after_a_mesh_that_knows_its_model(tmp_path: Path, start_mesh: Any) -> None:
    port = free_port()
    with (
        farm_in(tmp_path) as farm,
        start_mesh(tmp_path / "mesh", "--engine", f"http://127.0.0.1:{port}", "--model", "qwen") as mesh,
    ):
        with pytest.raises(openai.InternalServerError, match="503"):
            await asyncio.to_thread(ask, mesh, "qwen")
        farm.start(1, "qwen", port)
        await eventually(lambda: is_ready(mesh.state["ops_urls"]["worker-1"]), 60)
        assert ask(mesh, "qwen") == "qwen"


@pytest.mark.long
async def test_a_mesh_that_must_ask_for_the_model_waits(tmp_path: Path) -> None:
    port = free_port()
    for served in (False, True):
        folder = tmp_path / str(served)
        folder.mkdir()
        mesh = RunningMesh(folder, ["--engine", f"http://127.0.0.1:{port}"])
        try:
            await eventually(partial(waits, mesh), 60)
            if served:
                with farm_in(tmp_path) as farm:
                    farm.start(1, "qwen", port)
                    await asyncio.to_thread(mesh.wait_ready)
                    assert ask(mesh, "qwen") == "qwen"
        finally:
            assert mesh.stop() == (0 if served else 130)
