"""The adapter for vLLM, SGLang, the emulated engine and any other OpenAI-compatible server over HTTP/1.1."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import structlog

from hmas.contracts.cadences import LIVE
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp
from hmas.worker.adapters import scrape
from hmas.worker.adapters.base import EngineEvent, EngineJob, JobEnd, JobSink
from hmas.gateway.engines.body import TOP_LEVEL, replay_fields, sglang_level, vllm_priority, with_fields, with_xargs
from hmas.worker.adapters.breaker import Breaker, BreakerConfig
from hmas.runtime.http1 import HttpExchange, HttpPool, PoolConfig
from hmas.worker.adapters.monitor import EngineFacts, EngineMonitor, MonitorConfig, Unreachable
from hmas.gateway.engines.replies import EngineReply, StreamReply
from hmas.gateway.engines.sse import SseDecoder
from hmas.worker.adapters.steering import ControlBlockBridge, SglangCap, SteeringConfig

log = structlog.get_logger()

Priority = Literal["auto", "off", "vllm", "sglang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiHttpConfig:
    """Configuration of the adapter of one engine.

    `priority`: whose convention the integer priority of requests follows: `vllm` (lower first) or `sglang` (higher
    first); `off` sends none, and `auto` goes by what the engine reports, which only SGLang does. `control_block`: file
    shared with H-MAS's scheduler plug-in in vLLM; None: not used.
    """

    facts: EngineFacts
    url: str
    api_key: str = field(default="", repr=False)
    priority: Priority = "auto"
    control_block: Path | None = None
    probe_period_s: float = 1.0
    reprobe_s: float = 0.05  # time until an engine that is suspected or down is checked again
    scrape_period_s: float = LIVE.scrape_s
    step_readings: int = round(LIVE.step_window_s / LIVE.scrape_s)  # scrapes over which the mean step is taken
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    steering: SteeringConfig = field(default_factory=SteeringConfig)
    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)


@dataclass(slots=True, kw_only=True)
class _Job:
    exchange: HttpExchange
    reply: EngineReply
    prompt_tokens: int
    urgency: float
    level: int  # its priority among the requests that wait in an SGLang engine


class OpenAiHttpAdapter:
    """Runs jobs on one OpenAI-compatible engine, and watches it.

    `post` receives an event when the engine goes up, goes down, or was sampled.
    """

    def __init__(self, config: OpenAiHttpConfig, post: Callable[[EngineEvent], None]) -> None:
        self._config = config
        self._post = post
        self._target = _Target.of(config)
        self._pool = HttpPool(self._target.host, self._target.port, self._target.tls, config.pool)
        self._monitor = EngineMonitor(self._pool, self._target.head, config.facts, config.monitor)
        self._breaker = Breaker(config.breaker)
        self._bridge: ControlBlockBridge | None = None
        if config.control_block:
            self._bridge = ControlBlockBridge(self.name, config.control_block, config.steering)
        self._cap = SglangCap(self.name, self._monitor.post, config.steering)
        self._jobs: dict[str, _Job] = {}
        self._suspected = asyncio.Event()  # makes the next health check come at once
        self._up = False
        self._kv_capacity_tokens = 1
        self._tokens = 0  # output tokens of jobs that ended
        self._prompts = 0  # prompt tokens of jobs that ended with an answer
        self._answers = 0  # jobs that ended with an answer

    @property
    def name(self) -> str:
        return self._config.facts.name

    @property
    def up(self) -> bool:
        return self._up

    def start(self, job: EngineJob, sink: JobSink) -> None:
        reply = self._reply(job, sink)
        level = self._level(job.urgency)
        try:
            body = self._body(job, level)
        except ValueError as error:
            sink.on_end(
                JobEnd(
                    outcome=Outcome.INVALID_REQUEST,
                    message=f"the request body cannot be sent to an engine: {error}",
                    status=400,
                )
            )
            return
        head = self._target.head("POST", job.path, len(body), job)
        exchange = self._pool.send(head, body, reply)  # calls nothing back before this returns
        self._jobs[job.request_id] = _Job(
            exchange=exchange, reply=reply, prompt_tokens=job.prompt_tokens, urgency=job.urgency, level=level
        )

    def abort(self, request_id: str) -> None:
        job = self._jobs.pop(request_id, None)
        if job is not None:
            self._tokens += job.reply.tokens
            job.exchange.abort()

    def steer(self, n_run: int, b_token: int) -> None:
        if self._monitor.sglang is not None:
            self._cap.steer(n_run)
        elif self._bridge is not None:
            self._bridge.steer(n_run, b_token)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_probing())
            tasks.create_task(self._keep_sampling())
            tasks.create_task(self._cap.run())
            if self._bridge is not None:
                tasks.create_task(self._bridge.run())

    async def close(self) -> None:
        self._jobs.clear()
        await self._cap.restore()
        await self._pool.close()

    # --- jobs ----------------------------------------------------------------------------------------------------

    def _reply(self, job: EngineJob, sink: JobSink) -> EngineReply:
        def ended(reply: EngineReply, end: JobEnd) -> None:
            self._ended(job.request_id, reply, end)

        if not job.stream:
            return EngineReply(sink, ended)
        return StreamReply(sink, ended, SseDecoder(strip_usage=job.strip_usage))

    def _body(self, job: EngineJob, level: int) -> bytes:
        fields: dict[str, object] = {}
        priority = self._priority(job.urgency, level)
        if priority is not None:
            fields["priority"] = priority
        if job.replay_output_tokens is not None:
            fields.update(replay_fields(job.replay_output_tokens))
        body = with_fields(job.body, fields)
        return body if self._bridge is None else with_xargs(body, self._bridge.xargs(job))

    @property
    def _higher_first(self) -> bool | None:
        """Whether an SGLang engine serves higher priority levels first; None for an engine that is sent no levels."""
        if self._config.priority == "auto":
            return self._monitor.sglang.higher_first if self._monitor.sglang else None
        return True if self._config.priority == "sglang" else None

    def _level(self, urgency: float) -> int:
        if self._higher_first is None:
            return 0
        waiting = ((other.urgency, other.level) for other in self._jobs.values() if not other.reply.tokens)
        return sglang_level(urgency, waiting)

    def _priority(self, urgency: float, level: int) -> int | None:
        """Returns the priority to send, in the engine's own convention; None if it does not schedule by priority."""
        if self._config.priority == "vllm":
            return vllm_priority(urgency)
        higher_first = self._higher_first
        return None if higher_first is None else level if higher_first else TOP_LEVEL - level

    def _ended(self, request_id: str, reply: EngineReply, end: JobEnd) -> None:
        job = self._jobs.get(request_id)
        if job is None or job.reply is not reply:
            return
        del self._jobs[request_id]
        if end.outcome is Outcome.FINISHED:
            self._breaker.succeeded()
            self._tokens += max(reply.tokens, end.output_tokens or 0)
            self._prompts += end.prompt_tokens or job.prompt_tokens
            self._answers += 1
        elif reply.broken or (end.status >= 500 and end.status != 503):
            self._suspect(end.message)
            if job.exchange.refused:  # the outcome that later requests get, once the breaker is open
                end = replace(end, outcome=Outcome.NO_ENGINE)
        reply.sink.on_end(end)
        if end.outcome is not Outcome.FINISHED:
            job.exchange.abort()  # the rest of the answer is of no use

    def _suspect(self, reason: str) -> None:
        if self._breaker.failed(time.monotonic()):
            self._went_down(reason)
        self._suspected.set()

    # --- health --------------------------------------------------------------------------------------------------

    async def _keep_probing(self) -> None:
        while True:
            self._suspected.clear()
            if self._breaker.usable or self._breaker.probe_due(time.monotonic()):
                await self._probe()
            period_s = self._config.probe_period_s if self._breaker.usable else self._config.reprobe_s
            try:
                async with asyncio.timeout(period_s):  # wait_for may swallow a cancellation
                    await self._suspected.wait()
                await asyncio.sleep(self._config.reprobe_s)  # many streams that break at once cause one check
            except TimeoutError:
                pass

    async def _probe(self) -> None:
        seen = self._progress()
        try:
            await self._monitor.probe()
            if self._breaker.usable:
                self._breaker.probed()
                return
            info = await self._monitor.discover()
        except Unreachable as error:
            if self._breaker.usable and not error.certain and self._progress() > seen:
                return  # the engine answers slowly, but generates tokens
            if self._breaker.probe_failed(time.monotonic(), certain=error.certain) or not self._breaker.usable:
                self._dead(str(error))
            return
        self._breaker.probed()
        self._kv_capacity_tokens = max(1, info.kv_capacity_tokens)
        if self._monitor.sglang is not None:
            self._cap.discovered(self._monitor.sglang)
        self._up = True
        log.info("engine_up", engine=self.name, kind=info.kind, kv_capacity_tokens=info.kv_capacity_tokens)
        self._post(EngineWentUp(info))

    def _progress(self) -> int:
        return self._tokens + sum(job.reply.tokens for job in self._jobs.values())

    def _went_down(self, reason: str) -> None:
        if self._up:
            self._up = False
            log.warning("engine_down", engine=self.name, reason=reason)
            self._post(EngineWentDown(self.name, reason))

    def _dead(self, reason: str) -> None:
        """Fails all jobs on the engine, because it cannot serve or is gone and they would not end by themselves."""
        self._went_down(reason)
        for job in list(self._jobs.values()):
            job.reply.fail(f"the engine is down: {reason}")

    # --- samples -------------------------------------------------------------------------------------------------

    async def _keep_sampling(self) -> None:
        sampler = _Sampler(self.name, self._config.step_readings)
        while True:
            await asyncio.sleep(self._config.scrape_period_s)
            if not self._breaker.usable:
                continue
            try:
                reading = await self._monitor.reading()
            except Unreachable as error:
                log.debug("engine_not_scraped", engine=self.name, reason=str(error))
                continue
            now_s = time.monotonic()
            self._post(sampler.sample(now_s, reading or self._own_reading(), self._decoding()))

    def _own_reading(self) -> scrape.Reading:
        """Returns an estimate of the load for engines without metrics, from the jobs that this adapter runs there."""
        jobs = self._jobs.values()
        held = sum(job.prompt_tokens + job.reply.tokens for job in jobs)
        started = sum(job.prompt_tokens for job in jobs if job.reply.tokens)
        return scrape.Reading(
            running=len(jobs),
            waiting=0,
            kv_usage=min(1.0, held / self._kv_capacity_tokens),
            preemptions=0,
            prompt_tokens=float(self._prompts + started),
            generation_tokens=float(self._progress()),
            gap_sum_s=None,
            gap_count=None,
        )

    def _decoding(self) -> int:
        return sum(1 for job in self._jobs.values() if job.reply.tokens)


class _Sampler:
    """Derives an engine's rates from two successive scrapes, and its mean step from the last `step_readings`.

    The step is averaged because a single long prefill does not show utilisation: a request's TPOT averages over it.
    """

    def __init__(self, engine: str, step_readings: int) -> None:
        self._engine = engine
        self._before: tuple[float, scrape.Reading] | None = None
        self._recent: deque[scrape.Reading] = deque(maxlen=step_readings)
        self._step_s = 0.0

    def sample(self, now_s: float, reading: scrape.Reading, decoding: int) -> EngineSampled:
        """Returns a sample of the engine at `now_s`.

        `decoding`: the number of streams in decode. If the engine does not report its step, it is estimated from them,
        as each gets one token per step.
        """
        before_s, before = self._before or (now_s, reading)
        self._before = (now_s, reading)
        elapsed_s = now_s - before_s
        decode = scrape.rate_per_s(before.generation_tokens, reading.generation_tokens, elapsed_s)
        gap_s = scrape.mean_gap_s(self._recent[0] if self._recent else reading, reading)
        self._recent.append(reading)
        if gap_s is None and reading.gap_count is None and decode > 0.0 and decoding:
            gap_s = decoding / decode
        self._step_s = self._step_s if gap_s is None else gap_s
        return EngineSampled(
            engine=self._engine,
            running=reading.running,
            waiting=reading.waiting,
            kv_usage=reading.kv_usage,
            preemptions_total=reading.preemptions,
            step_s=self._step_s,
            prefill_tokens_per_s=scrape.rate_per_s(before.prompt_tokens, reading.prompt_tokens, elapsed_s),
            decode_tokens_per_s=decode,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The address that requests to an engine go to, and the HTTP heads that they begin with."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str  # path before /v1
    common: str  # headers of every request

    @staticmethod
    def of(config: OpenAiHttpConfig) -> "_Target":
        """Returns the target of an engine's URL. Raises ValueError if the URL has no host, or is not HTTP or HTTPS."""
        url = urlsplit(config.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"engine URL {config.url!r} is unusable: give http://HOST:PORT or https://HOST[:PORT]")
        tls = ssl.create_default_context() if url.scheme == "https" else None
        port = url.port or (443 if tls else 80)
        common = f"Host: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: hmas\r\nAccept-Encoding: identity\r\n"
        if config.api_key:
            common += f"Authorization: Bearer {config.api_key}\r\n"
        prefix = url.path.rstrip("/").removesuffix("/v1")
        return _Target(host=url.hostname, port=port, tls=tls, prefix=prefix, common=common)

    def head(self, method: str, path: str, length: int | None, job: EngineJob | None = None) -> bytes:
        head = f"{method} {self.prefix}{path} HTTP/1.1\r\n{self.common}"
        if length is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {length}\r\n"
        if job is not None:
            head += f"X-Request-Id: {_header_safe(job.request_id)}\r\n"
            if job.traceparent:
                head += f"traceparent: {_header_safe(job.traceparent)}\r\n"
        return (head + "\r\n").encode("latin-1")


def _header_safe(value: str) -> str:
    """Returns `value` without characters that could end an HTTP header, because ids may come from clients."""
    return value if value.isascii() and value.isprintable() else "".join(c for c in value if " " <= c <= "~")
