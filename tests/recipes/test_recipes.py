"""The recipes of docs/recipes.md: the page's own code, run with the products that it names, in front of a mesh."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from hmas.mesh.ports import free_port
from tests.conftest import HMAS
from tests.engines.environment import Unavailable
from tests.recipes.environment import LANGCHAIN, LITELLM, programs
from tests.recipes.page import MODEL, code

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(1800)]
START_S = 120.0
MASTER_KEY = "sk-of-litellm"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
TENANTS = """
tenants:
  litellm: {slo_min: {ttft_ms: 500}}
  busy: {requests_per_min: 1}
"""


def folder_of(requirement: str) -> Path:
    try:
        return programs(requirement)
    except Unavailable as reason:
        pytest.skip(f"{requirement} cannot be had here: {reason}")


def clean_env(**more: str) -> dict[str, str]:
    keep = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    return keep | more


def python(program: Path | str, text: str) -> str:
    done = subprocess.run(
        [program, "-c", text], capture_output=True, text=True, timeout=120, check=False, env=clean_env()
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Any]:
    with start_mesh(tmp_path_factory.mktemp("mesh"), "--alias", MODEL) as running:
        yield running


def test_the_openai_sdk(mesh: Any) -> None:
    assert len(python(sys.executable, code("The OpenAI SDK", "python", mesh.url)).split()) > 20


def test_langchain(mesh: Any) -> None:
    said = python(folder_of(LANGCHAIN) / "python", code("LangChain", "python", mesh.url))
    plain, streamed = said.split("\n", 1)
    assert min(len(plain.split()), len(streamed.split())) > 20


@pytest.fixture(scope="module")
def litellm(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[str]:
    """The URL of LiteLLM in front of a mesh that asks for keys, with the page's configuration."""
    program = folder_of(LITELLM) / "litellm"
    folder = tmp_path_factory.mktemp("litellm")
    tenants = folder / "tenants.yaml"
    tenants.write_text(TENANTS)
    keys = {
        tenant: subprocess.run(
            [HMAS, "keys", "make", tenant, "--file", str(tenants)], capture_output=True, text=True, check=True
        ).stdout.strip()
        for tenant in ("litellm", "busy")
    }  # fmt: skip
    with start_mesh(folder / "mesh", "--alias", MODEL, "--tenants", str(tenants)) as mesh:
        config = yaml.safe_load(code("Behind LiteLLM", "yaml", mesh.url))
        (entry,) = config["model_list"]
        busy = {**entry["litellm_params"], "api_key": "os.environ/BUSY_API_KEY"}
        config["model_list"].append({"model_name": "busy", "litellm_params": busy})
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        port = free_port()
        env = clean_env(
            HMAS_API_KEY=keys["litellm"], BUSY_API_KEY=keys["busy"], LITELLM_MASTER_KEY=MASTER_KEY,
            LITELLM_LOCAL_MODEL_COST_MAP="True",
        )  # fmt: skip
        where = ["--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
        command = [str(program), "--config", "config.yaml", *where]
        with (folder / "litellm.log").open("wb") as log:
            proxy = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + START_S
            while not answers(f"http://127.0.0.1:{port}/health/readiness"):
                assert proxy.poll() is None, (folder / "litellm.log").read_text()[-3000:]
                assert time.monotonic() < deadline_s
                time.sleep(0.3)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            proxy.terminate()
            proxy.wait(30)


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
def client(litellm: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=litellm, api_key=MASTER_KEY, max_retries=0, timeout=60) as client:
        yield client


def test_litellm_passes_answers_on(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="qwen", messages=HELLO, max_tokens=9)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 9
    assert len((answer.choices[0].message.content or "").split()) == 9


def test_litellm_passes_streams_on(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model="qwen", messages=HELLO, max_tokens=9, stream=True))
    assert len("".join(c.choices[0].delta.content or "" for c in chunks if c.choices).split()) == 9
    assert chunks[-1].choices[0].finish_reason == "length"


def test_litellm_asks_for_its_own_key(litellm: str) -> None:
    body = {"model": "qwen", "messages": HELLO}
    headers = {"authorization": "Bearer sk-wrong"}
    answer = httpx.post(f"{litellm}/chat/completions", json=body, headers=headers, timeout=60)
    assert answer.status_code in (400, 401)  # 400 where LiteLLM has no database of keys to look into


def test_an_slo_reaches_the_mesh_through_litellm(client: openai.OpenAI) -> None:
    """The tenant's bound clamps it, and the mesh says so."""
    raw = client.chat.completions.with_raw_response.create(
        model="qwen", messages=HELLO, max_tokens=3, extra_headers={"x-slo-ttft-ms": "100"}
    )
    assert raw.headers["llm_provider-x-hmas-slo-clamped"] == "ttft_ms=500"


def test_a_refusal_comes_through_litellm_with_its_reason(client: openai.OpenAI) -> None:
    def ask() -> None:
        client.chat.completions.create(model="busy", messages=HELLO, max_tokens=3)

    ask()
    with pytest.raises(openai.RateLimitError) as refused:
        ask()
    headers = refused.value.response.headers
    assert int(headers["llm_provider-retry-after"]) >= 1
    assert headers["llm_provider-x-hmas-reason"] == "tenant_request_rate"
