"""Which model predicts costs in a mesh that is started as the README does."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from random import Random
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families

from hmas.contracts.request import TaskType
from hmas.mesh.ports import free_port
from hmas_loadgen.typed import typed_prompts
from tests.conftest import OPS_HEADERS, eventually

pytestmark = pytest.mark.e2e
REQUESTS, AT_ONCE = 80, 8
# Budgets that no busy machine exceeds, because which model answers is the question, not how soon.
PATIENT = {
    "HMAS_COGNITION_TIMEOUT_S": "10",
    "HMAS_PERCEPTION_BUDGET_S": "5",
    "HMAS_PREDICTION_BUDGET_S": "5",
}


@contextmanager
def engine(profile: str) -> Iterator[str]:
    """Runs an emulated engine whose name for clients tells nothing of its model."""
    port = free_port()
    argv = [sys.executable, "-m", "hmas.engine", "--profile", profile, "--port", str(port)]
    process = subprocess.Popen([*argv, "--served-model-name", "chat"], stdout=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def told(mesh: Any, metric: str) -> list[tuple[dict[str, str], float]]:
    """Returns the samples of a metric of prediction: labels and value."""
    url = mesh.state["ops_urls"]["prediction"]
    families = text_string_to_metric_families(httpx.get(f"{url}/metrics", headers=OPS_HEADERS[url]).text)
    return [(s.labels, s.value) for family in families for s in family.samples if s.name == metric]


async def load(mesh: Any, model: str) -> None:
    prompts, draw, gate = typed_prompts(), Random(1), asyncio.Semaphore(AT_ONCE)

    async def one(client: openai.AsyncOpenAI, task: TaskType) -> None:
        text, tokens = prompts.text(task, draw.randrange(20, 400), 30, draw), draw.randrange(20, 40)
        async with gate:
            stream = await client.chat.completions.create(
                model=model, messages=[{"role": "user", "content": text}], max_tokens=tokens, stream=True
            )
            async for _ in stream:  # whose times are measured; those of a plain answer are not
                pass

    async with openai.AsyncOpenAI(base_url=f"{mesh.url}/v1", api_key="unused", max_retries=0, timeout=60) as client:
        await asyncio.gather(*(one(client, draw.choice(list(prompts.frames))) for _ in range(REQUESTS)))


async def shares(mesh: Any, model: str) -> dict[str, float]:
    """Sends requests, and returns for each cost model the share of them whose costs it predicted."""
    await load(mesh, model)
    return {labels["model"]: count / REQUESTS for labels, count in told(mesh, "hmas_prediction_answers_total")}


async def errors(mesh: Any, model: str) -> list[float]:
    """Returns the median errors of a cost model, corrected, once workers have told what they measured."""

    def values() -> list[float]:
        return [value for labels, value in told(mesh, "hmas_prediction_error") if labels["model"] == model]

    await eventually(lambda: not any(map(isnan, values())))
    return values()


async def test_catboost_does_for_the_engines_that_the_mesh_brings(tmp_path: Path, start_mesh: Any) -> None:
    with start_mesh(tmp_path / "mesh", env=PATIENT) as mesh:
        assert (await shares(mesh, "emulated")).get("catboost", 0.0) >= 0.95
        prefill, tpot = await errors(mesh, "catboost")
    assert max(prefill, tpot) < 0.7  # a factor of two


@pytest.mark.long
async def test_catboost_does_for_an_engine_whose_card_is_named(tmp_path: Path, start_mesh: Any) -> None:
    with engine("llama3.1-8b-rtx4090x1") as url:
        await eventually(lambda: healthy(url))
        with start_mesh(tmp_path / "mesh", "--engine", url, "--hardware", "RTX 4090", env=PATIENT) as mesh:
            assert (await shares(mesh, "chat")).get("catboost", 0.0) >= 0.95


@pytest.mark.long
async def test_without_a_known_card_the_physical_term_does_and_is_corrected(tmp_path: Path, start_mesh: Any) -> None:
    with engine("llama3.1-8b-rtx4090x1") as url:
        await eventually(lambda: healthy(url))
        with start_mesh(tmp_path / "mesh", "--engine", url, env=PATIENT) as mesh:
            assert await shares(mesh, "chat") == {"roofline": 1.0}
            prefill, tpot = await errors(mesh, "roofline")
            scales = told(mesh, "hmas_prediction_scale")
    assert max(prefill, tpot) < 0.7
    assert all(scale != 1.0 for _, scale in scales)
