"""In the place of llm-d's endpoint picker: the Envoy of its standalone chart, with llm-d's own configuration, asks the
mesh. HMAS_LLM_D names a checkout of llm-d's router, whose picker itself is a program in Go and is no package."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import yaml

from benchmarks.hop.envoy import envoy, installed
from hmas.mesh.certificates import make_certificates
from hmas.mesh.ports import free_port
from tests.chaos.counts import CountLog
from tests.deploy.chart import helm
from tests.engine_farm import farm_in, is_healthy

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(1800)]
N_RUN = 4
CHARTS = Path("config") / "charts"
CHART = "llm-d-router-standalone"
SLO = {"x-llm-d-slo-ttft-ms": "20000", "x-llm-d-inference-fairness-id": "chat"}


def envoys_configuration(checkout: Path, folder: Path) -> Any:
    """What llm-d's standalone chart, as Helm renders it, gives its Envoy."""
    shutil.copytree(checkout / CHARTS, folder / "charts")
    chart = str(folder / "charts" / CHART)

    def told(*arguments: str) -> str:
        command = [helm(), *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    told("dependency", "build", chart)
    page = told("template", "llm-d", chart, "--set", "router.modelServers.matchLabels.app=vllm")
    documents = [document for document in yaml.safe_load_all(page) if document]
    (text,) = (d["data"]["envoy.yaml"] for d in documents if "envoy.yaml" in (d.get("data") or {}))
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def llm_d(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[tuple[str, list[str], Any]]:
    """The URL of llm-d's Envoy, the engines, and the mesh that says where requests go. Ports are ours, and nothing else
    of the configuration."""
    checkout = os.environ.get("HMAS_LLM_D")
    if checkout is None:
        pytest.skip("HMAS_LLM_D does not name a checkout of llm-d's router")
    try:
        installed()
    except RuntimeError as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("llm-d")
    document = envoys_configuration(Path(checkout), folder)
    picker_port, port = free_port(), free_port()
    resources = document["static_resources"]
    document["admin"]["address"]["socket_address"]["port_value"] = free_port()
    for listener in resources["listeners"]:
        address = listener["address"]["socket_address"]
        address |= {"address": "127.0.0.1", "port_value": port if listener["name"] == "vllm" else free_port()}
        listener.pop("additional_addresses", None)  # the same port on every address of IPv6
    (picker,) = (cluster for cluster in resources["clusters"] if cluster["name"] == "ext_proc")
    (endpoint,) = picker["load_assignment"]["endpoints"][0]["lb_endpoints"]
    endpoint["endpoint"]["address"]["socket_address"]["port_value"] = picker_port
    make_certificates(folder / "certificates", 1)
    own = folder / "certificates" / "gateway"
    env = {
        "HMAS_PICKER_PORT": str(picker_port), "HMAS_STATIC_N_RUN": str(N_RUN), "HMAS_DISCOVERY_PERIOD_S": "0.2",
        "HMAS_TLS_CERT_FILE": str(own / "cert.pem"), "HMAS_TLS_KEY_FILE": str(own / "key.pem"),
    }  # fmt: skip
    with farm_in(folder, N_RUN) as farm:
        engines = farm.start(2)
        farm.name(*engines)
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated")
        with start_mesh(folder / "mesh", *args, env=env) as mesh, envoy(folder, document):
            url = f"http://127.0.0.1:{port}"
            deadline_s = time.monotonic() + 60
            while not all(is_healthy(each) for each in engines) or _ask(url, 1).status_code != 200:
                assert time.monotonic() < deadline_s, (folder / "envoy.log").read_text()[-3000:]
                time.sleep(0.5)
            yield url, engines, mesh


def _body(tokens: int, **more: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "why " * 20}]
    return {"model": "emulated", "messages": messages, "hmas_replay": {"output_tokens": tokens}, **more}


def _ask(url: str, tokens: int, **more: object) -> httpx.Response:
    return httpx.post(f"{url}/v1/chat/completions", json=_body(tokens, **more), headers=SLO, timeout=90)


def test_answers_are_the_engines(llm_d: tuple[str, list[str], Any]) -> None:
    url, *_ = llm_d
    hello: Any = [{"role": "user", "content": "Hello"}]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0, timeout=90) as client:
        plain = client.chat.completions.create(model="emulated", messages=hello, max_tokens=9, extra_headers=SLO)
        assert plain.usage is not None
        assert plain.usage.completion_tokens == 9
        stream = client.chat.completions.create(
            model="emulated", messages=hello, max_tokens=9, stream=True, extra_headers=SLO
        )
        chunks = list(stream)
        assert len("".join(c.choices[0].delta.content or "" for c in chunks if c.choices).split()) == 9
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="none", messages=hello, max_tokens=9)


async def test_requests_wait_in_the_mesh_and_n_run_holds(llm_d: tuple[str, list[str], Any]) -> None:
    url, engines, _ = llm_d
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits, headers=SLO) as client:
        with CountLog(engines) as counts:
            asked = [client.post("/v1/chat/completions", json=_body(60, stream=n % 2 == 0)) for n in range(32)]
            answers = await asyncio.gather(*asked)
    assert {answer.status_code for answer in answers} == {200}
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers[::2])
    assert counts.most() == N_RUN


async def test_long_answers_and_long_bodies_pass(llm_d: tuple[str, list[str], Any]) -> None:
    """Envoy gives its stream to the picker 10 s there."""
    url, *_ = llm_d
    begun_s = time.monotonic()
    async with httpx.AsyncClient(base_url=url, timeout=120) as client:
        long = await client.post("/v1/chat/completions", json=_body(1500, stream=True))
        took_s = time.monotonic() - begun_s
        large = await client.post("/v1/chat/completions", json=_body(3, metadata={"note": "n" * 300_000}))
    print(f"the long answer took {took_s:.1f} s")
    assert took_s > 12
    assert long.text.endswith("data: [DONE]\n\n")
    assert large.status_code == 200


def test_the_objectives_of_llm_ds_headers_are_those_of_the_request(llm_d: tuple[str, list[str], Any]) -> None:
    url, _, mesh = llm_d
    answer = _ask(url, 3)
    told = json.loads(mesh.hmas("why", answer.headers["x-request-id"], "--json", timeout=120).stdout)
    assert (told["slo"]["ttft_s"], told["slo"]["stated"], told["flow"]) == (20.0, True, "chat")
