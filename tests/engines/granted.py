"""One real engine between the two that share it: the worker's adapter watches and steers it, the gateway's runs send it
bodies and read its answers. What a worker's agent decides, tests decide here."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson

from hmas.contracts.execution import Ended, FirstToken, Grant, Timeline
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import CHAT_PATH
from hmas.gateway.engines.body import run_body
from hmas.gateway.engines.engines import EngineClient
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.engines.target import EngineTarget
from hmas.gateway.openai.forms import FORMS
from hmas.runtime.http1 import PoolConfig
from hmas.worker.adapters.base import EngineEvent
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.monitor import MonitorConfig
from hmas.worker.adapters.openai_http import OpenAiHttpAdapter, OpenAiHttpConfig, Priority
from hmas.worker.granted import GrantedRuns
from tests.engines.engine_server import MODEL, EngineServer
from tests.engines.through_the_mesh import PATIENCE_S, reached

GATEWAY, ENGINE, PATH = "gateway#1", "engine", "/v1/completions"
TIMELINE = Timeline(
    engine=ENGINE, topology="fcfs", queued_s=0.0, queue_length=0, overtaken=0, switches=0, upper_output_tokens=1.0,
    relegated=False,
)  # fmt: skip


class Granted:
    """One granted request: what its client was sent, and how its run ended."""

    def __init__(self, number: int, name: str, rig: "Rig", then: Callable[[], None] | None) -> None:
        self.data = bytearray()
        self.end: ReplyEnd | None = None
        self.then = then
        self.run = StreamedRun(name, number, rig, self.data.extend, strip_usage=True, form=FORMS[CHAT_PATH])

    @property
    def tokens(self) -> int:
        return self.run.tokens

    async def ended(self) -> ReplyEnd:
        await reached(lambda: self.end is not None)
        assert self.end is not None
        return self.end


class Rig:
    """The adapter, what it posts, and the requests that were granted, by name. It is the sink of their runs."""

    def __init__(self, config: OpenAiHttpConfig, gateway_key: str) -> None:
        self.events: asyncio.Queue[EngineEvent] = asyncio.Queue()
        self.adapter = OpenAiHttpAdapter(config, self.events.put_nowait)
        self.client = EngineClient(EngineTarget.of(config.url), gateway_key, PoolConfig())
        self.granted: dict[str, Granted] = {}
        self.order: list[str] = []  # names of those that ended, one after the other
        self._worker = GrantedRuns({ENGINE: self.adapter})
        self._worker.connect(GATEWAY)

    async def event(self, kind: type[Any]) -> Any:
        async with asyncio.timeout(PATIENCE_S):
            while not isinstance(event := await self.events.get(), kind):
                pass
        return event

    def start(
        self, name: str, tokens: int, *, urgency: float = 0.0, pace_s: float | None = None,
        then: Callable[[], None] | None = None,
    ) -> Granted:  # fmt: skip
        """Grants a request with a prompt that is its name, and sends it as a gateway does. `then` is called at its
        end."""
        number = len(self.granted) + 1
        grant = Grant(
            request_id=name, attempt=1, grant=number, engine=ENGINE, urgency=urgency, pace_s=pace_s, timeline=TIMELINE
        )
        body = orjson.dumps(
            {"prompt": name, "max_tokens": tokens, "ignore_eos": True, "stream": True,
             "stream_options": {"include_usage": True}}
        )  # fmt: skip
        parts = run_body(MODEL, body[1:], self._worker.grant(GATEWAY, grant), {})
        granted = self.granted[name] = Granted(number, name, self, then)
        granted.run.http = self.client.send(PATH, parts, name, "", granted.run)
        return granted

    def stop(self, name: str) -> None:
        """Stops a request as a gateway does whose client has gone away."""
        run = self.granted[name].run
        run.stop()
        self._worker.hear(GATEWAY, Ended(request_id=name, grant=run.number, outcome=Outcome.CANCELLED))

    def stop_all(self) -> None:
        for name, granted in self.granted.items():
            if granted.end is None:
                self.stop(name)

    # --- RunSink ---

    def on_first(self, run: GatewayRun) -> None:
        self._worker.hear(GATEWAY, FirstToken(run.request_id, run.number))

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        ended = Ended(
            request_id=run.request_id, grant=run.number, outcome=end.outcome, status=end.status,
            output_tokens=end.usage.output_tokens or run.tokens, prompt_tokens=end.usage.prompt_tokens,
        )  # fmt: skip
        engine = self._worker.hear(GATEWAY, ended)
        if engine is not None:
            engine.judge(ended)
        granted = self.granted[run.request_id]
        granted.end = end
        self.order.append(run.request_id)
        if granted.then is not None:
            granted.then()


@asynccontextmanager
async def rig_on(
    engine: EngineServer, *, max_num_seqs: int | None = None, worker_key: str | None = None,
    gateway_key: str | None = None, priority: Priority = "auto", control_block: Path | None = None,
) -> AsyncIterator[Rig]:  # fmt: skip
    """Both have the engine's own key unless another is named. At the end the engine is empty again."""
    config = OpenAiHttpConfig(
        facts=EngineFacts(name=ENGINE, max_num_seqs=max_num_seqs),
        url=engine.url,
        api_key=engine.api_key if worker_key is None else worker_key,
        priority=priority,
        control_block=control_block,
        monitor=MonitorConfig(timeout_s=30.0),
    )
    rig = Rig(config, engine.api_key if gateway_key is None else gateway_key)
    running = asyncio.create_task(rig.adapter.run())
    try:
        yield rig
    finally:
        rig.stop_all()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await rig.adapter.close()
        await rig.client.pool.close()
    await reached(lambda: engine.running == engine.waiting == 0)
