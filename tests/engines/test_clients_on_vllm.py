"""The official clients against a mesh in front of a real vLLM: the same cases as with the emulated engine."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.clients.cases import GENERATING, POOLING, Case, Clients
from tests.engines.conftest import started
from tests.engines.engine_server import MODEL
from tests.engines.environment import EngineEnvironment
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]


# vLLM refuses tools without the first two; a coding agent's request is long.
FLAGS = ("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--max-model-len", "16384")

SCRIPT, ADAPTER = Path(__file__).with_name("tiny_adapter.py"), "adapter"


@contextmanager
def served(environment: EngineEnvironment, folder: Path, start_mesh: Any, *flags: str) -> Iterator[str]:
    """The URL of a mesh in front of a vLLM that was started with these flags."""
    server = VllmServer(environment, folder, *flags, scheduler="")
    with started(server), start_mesh(folder, "--engine", server.url, "--max-num-seqs", "8") as mesh:
        yield mesh.url


@pytest.fixture(scope="module")
def generating(
    environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory, start_mesh: Any
) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("generating")
    made = [str(environment.python), str(SCRIPT), str(folder / ADAPTER)]
    subprocess.run(made, env=environment.env(), check=True, capture_output=True, timeout=300)
    adapter = ("--enable-lora", "--max-lora-rank", "8", "--lora-modules", f"{ADAPTER}={folder / ADAPTER}")
    with served(environment, folder, start_mesh, *FLAGS, *adapter) as url:
        yield url


@pytest.fixture(scope="module")
def pooling(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[str]:
    with served(environment, tmp_path_factory.mktemp("pooling"), start_mesh, "--runner", "pooling") as url:
        yield url


@pytest.mark.parametrize("case", GENERATING, ids=lambda case: case.__name__)
async def test_a_clients_case(case: Case, generating: str) -> None:
    async with Clients(generating, MODEL) as clients:
        await clients.passes(case)


@pytest.mark.parametrize("case", POOLING, ids=lambda case: case.__name__)
async def test_a_clients_case_of_an_engine_that_embeds(case: Case, pooling: str) -> None:
    async with Clients(pooling, MODEL) as clients:
        await clients.passes(case)


def test_what_an_engine_does_not_serve_is_told(generating: str, pooling: str) -> None:
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
    refused = httpx.post(f"{pooling}/v1/chat/completions", json=chat, timeout=60)
    assert (refused.status_code, "/v1/embeddings" in refused.json()["error"]["message"]) == (404, True)
    refused = httpx.post(f"{generating}/v1/embeddings", json={"model": MODEL, "input": "x"}, timeout=60)
    assert (refused.status_code, "/v1/messages" in refused.json()["error"]["message"]) == (404, True)


def test_an_adapter_that_the_engine_lists_is_a_model_of_its_own(generating: str) -> None:
    """The engine gets the name that the client sent, or both would say the same."""
    said = {}
    for model in (MODEL, ADAPTER):
        body = {"model": model, "prompt": "the of and to", "max_tokens": 8, "temperature": 0}
        answer = httpx.post(f"{generating}/v1/completions", json=body, timeout=120).json()
        assert answer["model"] == model
        said[model] = answer["choices"][0]["text"]
    assert said[MODEL] != said[ADAPTER]
    listed = httpx.get(f"{generating}/v1/models", timeout=60).json()["data"]
    assert {each["id"] for each in listed} == {MODEL, ADAPTER}
