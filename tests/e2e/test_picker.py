"""The endpoint picker under a real Envoy, with the configuration that users copy: Envoy carries, the mesh decides."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc
import httpx
import openai
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from benchmarks.hop.envoy import configuration, envoy, installed
from hmas.mesh.ports import free_port
from hmas.wire.v1 import ext_proc_pb2 as pb
from hmas.wire.v1.ext_proc_pb2_grpc import ExternalProcessorStub
from tests.chaos.counts import CountLog
from tests.chaos.hurt import EngineLog, metric
from tests.chaos.load import Load
from tests.conftest import HMAS, eventually
from tests.e2e.test_tenants import make_key
from tests.engine_farm import EngineFarm, farm_in, is_healthy

pytestmark = [pytest.mark.e2e, pytest.mark.long]
N_RUN = 4
PATH = "/v1/chat/completions"
SERVING = health_pb2.HealthCheckResponse.SERVING


@dataclass
class Picked:
    """A mesh with two engines, and an Envoy before it."""

    url: str
    duplex_url: str  # of a second one, by which all bodies come to the picker in parts
    admin_url: str
    picker: str
    mesh: Any
    farm: EngineFarm
    engines: list[str]
    keys: dict[str, str]

    def client(self, tenant: str = "free") -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {self.keys[tenant]}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=60)

    def running(self) -> float:
        return sum(metric(url, "vllm:num_requests_running{") for url in self.engines)

    def live(self) -> float:
        return metric(self.mesh.gateway_ops_url, "hmas_gateway_live_requests")

    def sent(self, name: str) -> float:
        """A counter of the picker's cluster in Envoy."""
        page = httpx.get(f"{self.admin_url}/stats?filter={name}$").text
        return sum(float(line.rsplit(":", 1)[1]) for line in page.splitlines())


def body(tokens: int, **fields: object) -> dict[str, object]:
    messages = [{"role": "user", "content": "why " * 20}]
    return {"model": "emulated", "messages": messages, "hmas_replay": {"output_tokens": tokens}, **fields}


@pytest.fixture(scope="module")
def picked(tmp_path_factory: pytest.TempPathFactory, start_mesh: Any) -> Iterator[Picked]:
    try:
        installed()
    except RuntimeError as reason:
        pytest.skip(str(reason))
    folder = tmp_path_factory.mktemp("picker")
    tenants = folder / "tenants.yaml"
    tenants.write_text("tenants:\n  free: {}\n  single:\n    max_in_flight: 1\n")
    keys = {tenant: make_key(HMAS, tenant, tenants)[0] for tenant in ("free", "single")}
    port, admin_port, picker_port, duplex_port = free_port(), free_port(), free_port(), free_port()
    env = {
        "HMAS_PICKER_PORT": str(picker_port),
        "HMAS_STATIC_N_RUN": str(N_RUN),
        "HMAS_MIN_DWELL_S": "600",
        "HMAS_DISCOVERY_PERIOD_S": "0.2",
    }
    with farm_in(folder, N_RUN) as farm:
        engines = farm.start(2)
        farm.name(*engines)
        args = ("--replay", "--engine", f"file+{farm.file}", "--model", "emulated", "--tenants", str(tenants))
        with start_mesh(folder / "mesh", *args, env=env) as mesh:
            gateway_port = int(mesh.url.rsplit(":", 1)[1])
            configured = partial(configuration, picker_port=picker_port, gateway_port=gateway_port)
            document = configured(port=port, admin_port=admin_port)
            duplex = configured(port=duplex_port, admin_port=free_port(), duplex=True)
            (folder / "duplex").mkdir()
            with envoy(folder, document), envoy(folder / "duplex", duplex):
                found = Picked(
                    url=f"http://127.0.0.1:{port}",
                    duplex_url=f"http://127.0.0.1:{duplex_port}",
                    admin_url=f"http://127.0.0.1:{admin_port}",
                    picker=f"127.0.0.1:{picker_port}",
                    mesh=mesh,
                    farm=farm,
                    engines=engines,
                    keys=keys,
                )
                _until_both_serve(found)
                yield found


def _until_both_serve(picked: Picked) -> None:
    workers = [url for name, url in picked.mesh.state["ops_urls"].items() if name.startswith("worker")]
    deadline = time.monotonic() + 30
    while [metric(url, "hmas_worker_engines_owned") for url in workers] != [1, 1]:
        assert time.monotonic() < deadline, "two workers should have an engine each"
        time.sleep(0.1)


@asynccontextmanager
async def streaming(picked: Picked, tokens: int) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[str]]]:
    """A streamed answer of which the first token has come."""
    async with picked.client() as client, client.stream("POST", PATH, json=body(tokens, stream=True)) as response:
        lines = response.aiter_lines()
        async for line in lines:
            if '"content":" ' in line:
                break
        yield response, lines


async def test_streamed_and_plain_answers_come_from_the_engine_as_they_are(picked: Picked) -> None:
    log = EngineLog(picked.engines)
    messages: Any = [{"role": "user", "content": "why " * 20}]
    async with openai.AsyncOpenAI(base_url=f"{picked.url}/v1", api_key=picked.keys["free"], max_retries=0) as client:
        plain = await client.chat.completions.with_raw_response.create(
            model="emulated", messages=messages, max_tokens=7, extra_headers={"x-request-id": "mine"}
        )
        stream = await client.chat.completions.create(model="emulated", messages=messages, max_tokens=9, stream=True)
        chunks = [chunk async for chunk in stream]
        assert [model.id async for model in client.models.list()] == ["emulated"]
    usage = plain.parse().usage
    assert usage is not None
    assert usage.completion_tokens <= 7
    assert plain.headers["x-request-id"] == "mine"
    assert all(chunk.usage is None for chunk in chunks)  # nobody asked for it
    assert chunks[-1].choices[0].finish_reason
    assert sum(log.served().values()) == 2
    why = picked.mesh.hmas("why", "mine", "--json")
    assert '"outcome": "finished"' in why.stdout, why
    await eventually(lambda: picked.live() == 0)


async def test_tokens_do_not_pass_the_picker(picked: Picked) -> None:
    """An answer takes as many messages as any other, however long it is."""
    told = []
    async with picked.client() as client:
        for tokens in (3, 200):
            before = picked.sent("ext_proc.stream_msgs_sent"), picked.sent("ext_proc.stream_msgs_received")
            answer = await client.post(PATH, json=body(tokens, stream=True))
            assert answer.text.count("data: ") > tokens
            after = picked.sent("ext_proc.stream_msgs_sent"), picked.sent("ext_proc.stream_msgs_received")
            told.append((after[0] - before[0], after[1] - before[1]))
    assert told == [(3, 3), (3, 3)]  # headers, body, the answer's headers; and an answer to each


async def test_refusals_are_those_of_the_api(picked: Picked) -> None:
    async with picked.client() as free, picked.client("single") as single:
        unknown = await free.post(PATH, json=body(3, model="other"))
        invalid = await free.post(PATH, json={"model": "emulated"})
        keyless = await free.post(PATH, json=body(3), headers={"authorization": ""})
        first = asyncio.create_task(single.post(PATH, json=body(60)))
        await eventually(lambda: picked.live() == 1)
        second = await single.post(PATH, json=body(3))
        assert (await first).status_code == 200
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert (invalid.status_code, invalid.json()["error"]["param"]) == (400, "messages")
    assert keyless.status_code == 401
    assert (second.status_code, second.json()["error"]["reason"]) == (429, "tenant_in_flight")
    assert int(second.headers["retry-after"]) >= 1


async def test_a_client_chooses_no_engine(picked: Picked) -> None:
    log = EngineLog(picked.engines)
    async with picked.client() as client:
        answer = await client.post(PATH, json=body(3), headers={"x-gateway-destination-endpoint": "127.0.0.1:1"})
    assert answer.status_code == 200
    assert sum(log.served().values()) == 1


async def test_requests_wait_and_no_engine_runs_more_than_n_run(picked: Picked) -> None:
    async with picked.client() as client:
        with CountLog(picked.engines) as counts:
            started_s = time.monotonic()
            asked = [client.post(PATH, json=body(80, stream=bool(i % 2))) for i in range(8 * N_RUN)]
            tasks = [asyncio.create_task(each) for each in asked]
            await eventually(lambda: picked.live() == 8 * N_RUN)
            answers = await asyncio.gather(*tasks)
    print(f"{len(answers)} requests in {time.monotonic() - started_s:.1f} s, most running {counts.most()} of {N_RUN}")
    assert [answer.status_code for answer in answers] == [200] * (8 * N_RUN)
    assert counts.most() == N_RUN
    assert not counts.excesses(N_RUN), [str(each) for each in counts.excesses(N_RUN)]


async def test_a_client_that_leaves_while_it_waits_never_reaches_an_engine(picked: Picked) -> None:
    log = EngineLog(picked.engines)
    count = 4 * N_RUN  # as many again wait, so that both engines are full however requests are dealt
    async with picked.client() as client:
        long = [asyncio.create_task(client.post(PATH, json=body(300))) for _ in range(count)]
        await eventually(lambda: picked.running() == 2 * N_RUN)
        waiting = [asyncio.create_task(client.post(PATH, json=body(5))) for _ in range(3)]
        await eventually(lambda: picked.live() == count + 3)
        for task in waiting:
            task.cancel()
        await eventually(lambda: picked.live() == count)
        assert picked.running() == 2 * N_RUN
        assert {answer.status_code for answer in await asyncio.gather(*long)} == {200}
    assert sorted(tokens for _, tokens in log.served().elements()) == [300] * count
    assert not log.aborted()


async def test_a_client_that_leaves_in_the_middle_frees_its_slot(picked: Picked) -> None:
    log = EngineLog(picked.engines)
    async with streaming(picked, 2000):
        assert (picked.live(), picked.running()) == (1, 1)
    await eventually(lambda: picked.live() == 0 and picked.running() == 0, 5)
    assert log.aborted() == 1


async def test_long_bodies_pass_whole_and_once(picked: Picked) -> None:
    log = EngineLog(picked.engines)
    async with picked.client() as client:
        for size in (100_000, 1_100_000, 1_900_000):
            answer = await client.post(PATH, json=body(3, metadata={"note": "n" * size}))
            assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 3)
        large = await client.post(PATH, json=body(3, metadata={"note": "n" * 2_200_000}))
        assert (large.status_code, large.json()["error"]["reason"]) == (413, "body_too_large")
    assert sum(log.served().values()) == 3


async def test_a_gateway_that_streams_all_bodies_here_gets_them_back(picked: Picked) -> None:
    """The mode of the Gateway API's implementations: parts of answers pass unread, and long bodies end twice."""
    log = EngineLog(picked.engines)
    async with picked.client() as client:
        stream = await client.post(f"{picked.duplex_url}{PATH}", json=body(20, stream=True))
        assert (stream.text.count("data: "), stream.text[-14:]) == (22, "data: [DONE]\n\n")
        for size in (10, 100_000, 1_900_000):
            answer = await client.post(f"{picked.duplex_url}{PATH}", json=body(3, metadata={"note": "n" * size}))
            assert (answer.status_code, answer.json()["usage"]["completion_tokens"]) == (200, 3)
        refused = await client.post(f"{picked.duplex_url}{PATH}", json={"model": "emulated"})
        assert refused.json()["error"]["param"] == "messages"
    assert sum(log.served().values()) == 4
    await eventually(lambda: picked.live() == 0)


async def test_an_engine_that_dies_takes_only_what_it_had(picked: Picked) -> None:
    async with Load(picked.url, rate=6.0, output_tokens=40, key=picked.keys["free"]) as load:
        await asyncio.sleep(1.5)
        picked.farm.stop(picked.engines[1])
        picked.farm.name(picked.engines[0])
        await asyncio.sleep(3.0)
        finished = load.ends["finished"]
        await eventually(lambda: load.ends["finished"] >= finished + 6)
    failed = sum(count for end, count in load.ends.items() if end != "finished")
    print(load.ends, load.details)
    assert not load.lost
    assert failed <= 2 * N_RUN
    picked.engines[1:] = picked.farm.start(1)
    await eventually(lambda: is_healthy(picked.engines[1]))
    picked.farm.name(*picked.engines)
    await asyncio.to_thread(_until_both_serve, picked)


async def test_a_picker_that_restarts_cuts_no_answer(picked: Picked) -> None:
    async with streaming(picked, 300) as (_, lines):
        picked.mesh.kill("gateway")
        rest = [line async for line in lines]
    assert rest[-2:] == ["data: [DONE]", ""]
    async with picked.client() as client:
        statuses: list[int] = []
        async with asyncio.timeout(20):
            while not statuses or statuses[-1] != 200:
                statuses.append((await client.post(PATH, json=body(3))).status_code)
                await asyncio.sleep(0.2)
    assert set(statuses) <= {200, 503}
    await eventually(lambda: picked.running() == 0)


async def test_its_health_is_told_as_the_protocol_names_it(picked: Picked) -> None:
    async with grpc.aio.insecure_channel(picked.picker) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        for service in ("", "liveness", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor"):
            async with asyncio.timeout(20):  # the gateway of the test before has just started again
                while (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status != SERVING:
                    await asyncio.sleep(0.2)


async def test_a_gateway_that_stops_tells_its_health_and_lets_answers_end(picked: Picked) -> None:
    async with streaming(picked, 100) as (_, lines):
        os.kill(picked.mesh.pid("gateway"), signal.SIGTERM)
        assert [line async for line in lines][-2:] == ["data: [DONE]", ""]
    await asyncio.sleep(0.5)
    async with picked.client() as client, asyncio.timeout(30):
        while (await client.post(PATH, json=body(3))).status_code != 200:
            await asyncio.sleep(0.2)


async def test_an_endpoint_outside_the_proxys_subset_is_not_named(picked: Picked) -> None:
    """What Envoy's own configuration does not send: messages built by the protocol."""
    async with grpc.aio.insecure_channel(picked.picker) as channel:
        call = ExternalProcessorStub(channel).Process()  # type: ignore[no-untyped-call]
        headers = {":method": "POST", ":path": PATH, "authorization": f"Bearer {picked.keys['free']}"}
        first = pb.ProcessingRequest(request_headers=pb.HttpHeaders(headers=pb.HeaderMap()))
        for name, value in headers.items():
            first.request_headers.headers.headers.add(key=name, raw_value=value.encode())
        hint = first.metadata_context.filter_metadata["envoy.lb.subset_hint"]
        hint.get_or_create_list("x-gateway-destination-endpoint-subset").extend(["127.0.0.1:1"])
        await call.write(first)
        data = httpx.Request("POST", "http://x", json=body(3)).content
        await call.write(pb.ProcessingRequest(request_body=pb.HttpBody(body=data, end_of_stream=True)))
        answer = await call.read()
        call.cancel()
    assert answer.immediate_response.status.code == 503
