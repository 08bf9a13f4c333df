"""Our adapter and our gateway's runs against a real vLLM as published: its own scheduler, told to go by priority, and
an API key."""

import json
from collections.abc import AsyncIterator, Iterator

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentUp
from tests.engines.conftest import started
from tests.engines.environment import EngineEnvironment
from tests.engines.granted import Rig, rig_on
from tests.engines.through_the_mesh import reached
from tests.engines.vllm_server import VllmServer

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600)]
CONTEXT, LONG = 16_384, 15_000  # a request that ends by itself long after the others have arrived
TOKENS_A_SECOND = 600  # of one request, on an idle machine


@pytest.fixture(scope="module")
def plain(environment: EngineEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VllmServer]:
    """It runs one at a time, so that the order is exact."""
    server = VllmServer(
        environment, tmp_path_factory.mktemp("vllm-plain"), "--scheduling-policy", "priority", "--max-num-seqs", "1",
        "--max-model-len", str(CONTEXT), scheduler="", api_key="vllm-key",
    )  # fmt: skip
    with started(server):
        yield server


@pytest.fixture
async def rig(plain: VllmServer) -> AsyncIterator[Rig]:
    async with rig_on(plain, max_num_seqs=1, priority="vllm") as made:
        await made.event(EngineWentUp)
        yield made


async def test_it_tells_its_bounds_itself(plain: VllmServer) -> None:
    async with rig_on(plain) as rig:
        info = (await rig.event(EngineWentUp)).info
    assert (info.dialect, info.max_model_len, info.kv_capacity_tokens) == ("vllm", CONTEXT, plain.cache_tokens)


async def test_it_answers_nobody_without_its_key(plain: VllmServer) -> None:
    """A gateway's wrong key is the mesh's fault, not the client's; a worker's leaves its context unknown."""
    async with rig_on(plain, worker_key="", gateway_key="wrong") as rig:
        assert (await rig.event(EngineWentUp)).info.max_model_len != CONTEXT
        end = await rig.start("no key", 5).ended()
    assert (end.outcome, end.status, end.retryable) == (Outcome.ENGINE_ERROR, 401, True)


async def test_a_stream_is_counted_and_read_to_its_end(rig: Rig) -> None:
    granted = rig.start("once", 40)
    end = await granted.ended()
    assert (end.outcome, end.usage.output_tokens) == (Outcome.FINISHED, 40)
    assert 5 < granted.tokens <= 40  # it may put several tokens into one chunk
    assert b'"usage":{' not in granted.data + end.data


async def test_the_more_urgent_is_served_first(rig: Rig, plain: VllmServer) -> None:
    """By the priority in the body alone: this engine has no plug-in."""
    first = rig.start("first", LONG, urgency=100.0)
    await reached(lambda: first.tokens > 0)
    urgencies = [5.0, 1.0, 4.0, 0.001, 7.0, -2.0, 6.0]
    for count, urgency in enumerate(urgencies, 1):
        rig.start(f"{urgency}", 10, urgency=urgency)
        await reached(lambda n=count: plain.waiting == n)  # type: ignore[misc]
    while (sample := await rig.event(EngineSampled)).waiting < len(urgencies):
        pass
    assert (sample.running, sample.counted) == (1, True)
    assert first.end is None, "all of them must wait behind it"
    rig.stop("first")
    await reached(lambda: len(rig.order) == len(urgencies))
    assert rig.order == [f"{urgency}" for urgency in sorted(urgencies)]


async def test_a_stop_frees_it_within_a_second(rig: Rig, plain: VllmServer) -> None:
    """A second of its own time: not more tokens than it makes in one when nothing else runs on the machine."""
    granted = rig.start("long", LONG)
    await reached(lambda: granted.tokens > 0)
    before = plain.metric("vllm:generation_tokens_total")
    rig.stop("long")
    await reached(lambda: plain.running == 0)
    assert plain.metric("vllm:generation_tokens_total") - before < TOKENS_A_SECOND


async def test_a_request_too_long_is_the_clients_error(rig: Rig) -> None:
    end = await rig.start("long", 99_999).ended()
    assert (end.outcome, end.status) == (Outcome.ENGINE_REFUSED, 400)
    assert "99999" in json.loads(end.data)["error"]["message"]
