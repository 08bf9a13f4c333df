"""Two emulated engines hand KV over: the bodies that routers send to vLLM, and what goes wrong on the way."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
import uvicorn

from hmas.contracts.step_cost import StepCostModel
from hmas.engine.core.output_length import OutputLength
from hmas.engine.hand_overs import BadTransfer, KvTransferConfig, remote_kv_of
from hmas.engine.server import EngineServer
from tests.conftest import PATIENCE_S
from tests.engine.test_engine_server import CHAT, FAST

PREFILL = {
    "max_tokens": 1, "max_completion_tokens": 1, "stream": False,
    "kv_transfer_params": {
        "do_remote_decode": True, "do_remote_prefill": False, "remote_engine_id": None, "remote_block_ids": None,
        "remote_host": None, "remote_port": None,
    },
}  # fmt: skip
SLOW_PREFILL = replace(FAST, cost=StepCostModel(c0_s=0.002, c_p_s=0.01, c_d_s=0.0, c_k_s=0.0))
BODY = {"model": "m", "messages": [{"role": "user", "content": "tell " * 100}], "max_tokens": 4, "ignore_eos": True}
Start = Callable[..., Awaitable["Engine"]]


class Engine:
    def __init__(self, app: EngineServer, server: uvicorn.Server, port: int) -> None:
        self.app, self.server = app, server
        self.client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S)

    async def ask(self, **fields: Any) -> httpx.Response:
        return await self.client.post(CHAT, json=BODY | fields)

    async def prefilled(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.ask(**PREFILL)).json()["kv_transfer_params"]
        return found

    async def fault(self, kind: str) -> None:
        await self.client.post("/hmas/kv/fault", json={"kind": kind})

    @property
    def used(self) -> int:
        kv = self.app.core.kv
        return kv.num_blocks - kv.free


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    running: list[Engine] = []

    async def starter(**settings: Any) -> Engine:
        config = KvTransferConfig(**{"tokens_per_s": 1e6, **settings})
        app = EngineServer(SLOW_PREFILL, "m", OutputLength(median=5, sigma=0.5), kv_transfer=config)
        served = uvicorn.Config(app, port=0, http="httptools", ws="none", log_level="critical")
        served.load()
        server = uvicorn.Server(served)
        server.lifespan = served.lifespan_class(served)
        await server.startup()
        port = server.servers[0].sockets[0].getsockname()[1]
        app.address = "127.0.0.1", port
        running.append(Engine(app, server, port))
        return running[-1]

    yield starter
    for each in running:
        await each.client.aclose()
        each.server.force_exit = True  # a reader that is kept waiting would keep it up
        await each.server.shutdown()


def words_of(answer: httpx.Response) -> str:
    return "".join(re.findall(r'"content":"([^"]*)"', answer.text))


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not holds():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", [False, True])
async def test_the_second_engine_goes_on_from_the_kv_of_the_first(start: Start, stream: bool) -> None:
    """The first leg's answer is passed on as it is, and the prompt is computed once."""
    first, second = await start(), await start()
    told = await first.prefilled()
    assert (told["do_remote_prefill"], told["do_remote_decode"], told["transfer_mode"]) == (True, False, "pull")
    assert first.used == len(told["remote_block_ids"][0]) == -(-told["remote_num_tokens"] // 16)
    answer = await second.ask(kv_transfer_params=told, stream=stream)
    assert answer.status_code == 200
    assert "kv_transfer_params" not in answer.text
    assert words_of(answer) == words_of(await first.ask(stream=stream))
    (record,) = second.app.telemetry.records
    assert record.ttft_s < first.app.telemetry.records[0].ttft_s / 2
    await until(lambda: first.used == second.used == 0)


async def test_reads_from_one_engine_come_one_after_the_other(start: Start) -> None:
    first, second = await start(), await start(tokens_per_s=1000.0)
    legs = [await first.prefilled() for _ in range(3)]
    tokens = legs[0]["remote_num_tokens"]
    await asyncio.gather(*(second.ask(kv_transfer_params=leg) for leg in legs))
    waits = sorted(record.ttft_s for record in second.app.telemetry.records)
    assert [wait > (n + 1) * (tokens - 1) / 1000.0 for n, wait in enumerate(waits)] == [True] * 3


async def test_the_lease_ends_what_nobody_reads(start: Start) -> None:
    first, second = await start(lease_s=0.05), await start()
    told = await first.prefilled()
    await until(lambda: first.used == 0)
    assert "vllm:nixl_num_kv_expired_reqs_total" in (await first.client.get("/metrics")).text
    assert 'reqs_total{engine="0",model_name="m"} 1.0' in (await first.client.get("/metrics")).text
    answer = await second.ask(kv_transfer_params=told)
    assert (answer.status_code, second.used) == (500, 0)
    assert "there is no KV of the request" in answer.json()["error"]["message"]


@pytest.mark.parametrize("fault", ["fail", "expire"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_prompt_whose_kv_does_not_come_fails_or_is_computed(start: Start, fault: str, stream: bool) -> None:
    first, fails, computes = await start(), await start(), await start(recompute=True)
    legs = [await first.prefilled() for _ in range(2)]
    await first.fault(fault)
    answer = await fails.ask(kv_transfer_params=legs[0], stream=stream)
    assert (answer.status_code, fails.used) == (500, 0)
    answer = await computes.ask(kv_transfer_params=legs[1], stream=stream)
    assert (answer.status_code, computes.used) == (200, 0)
    assert computes.app.telemetry.records[0].output_tokens == 4


async def test_a_client_that_leaves_while_its_kv_is_read_leaves_nothing_behind(start: Start) -> None:
    first, second = await start(), await start()
    told = await first.prefilled()
    await first.fault("hang")
    asked = asyncio.ensure_future(second.ask(kv_transfer_params=told))
    await until(lambda: second.used > 0)
    asked.cancel()
    await until(lambda: second.used == 0)
    assert second.app.core.handed.idle


async def test_an_engine_without_a_connector_ignores_all_this(start: Start) -> None:
    engine = await start()
    engine.app._kv_transfer = engine.app._transfers = None
    assert "kv_transfer_params" not in (await engine.ask(**PREFILL)).text
    assert (await engine.client.post("/hmas/kv/read", json={})).status_code == 404


def test_parameters_must_be_those_of_an_answer() -> None:
    assert remote_kv_of({"do_remote_prefill": False}) is remote_kv_of(None) is None
    with pytest.raises(BadTransfer, match="must be those of an answer"):
        remote_kv_of({"do_remote_prefill": True, "remote_host": "h", "remote_port": "1", "remote_request_id": "r"})


def test_the_flag_is_read_as_vllm_reads_it() -> None:
    told = '{"kv_connector": "NixlConnector", "kv_role": "kv_consumer", "kv_load_failure_policy": "recompute", '
    extra = '"kv_connector_extra_config": {"kv_lease_duration": 10, "tokens_per_s": 5e4}}'
    assert KvTransferConfig.parse(told + extra) == KvTransferConfig(recompute=True, lease_s=10.0, tokens_per_s=5e4)
    for bad in ('{"kv_connector": "Other"}', '{"kv_connector": "NixlConnector", "kv_role": "x"}', "[]"):
        with pytest.raises(ValueError, match="kv_"):
            KvTransferConfig.parse(bad)
