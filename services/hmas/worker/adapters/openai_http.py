"""The adapter for vLLM, SGLang, the emulated engine and any other OpenAI-compatible server over HTTP/1.1."""

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

import structlog

from hmas.contracts.cadences import LIVE
from hmas.contracts.execution import Ended
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import EngineSampled, EngineWentDown, EngineWentUp
from hmas.runtime.extras import needs
from hmas.runtime.http1 import HttpPool, PoolConfig
from hmas.worker.adapters import scrape
from hmas.worker.adapters.base import EngineEvent, GrantedRun
from hmas.worker.adapters.breaker import Breaker, BreakerConfig
from hmas.worker.adapters.engine_facts import EngineFacts
from hmas.worker.adapters.kv_events_config import KvEventsConfig
from hmas.worker.adapters.monitor import EngineMonitor, MonitorConfig, Unreachable
from hmas.worker.adapters.priority import TOP_LEVEL, sglang_level, vllm_priority
from hmas.worker.adapters.steering import ControlBlockBridge, SglangCap, SteeringConfig

if TYPE_CHECKING:
    from hmas.worker.adapters.kv_events import KvEvents

log = structlog.get_logger()

_UNUSABLE = (Unreachable, ValueError, ArithmeticError)  # what comes of answers that make no sense
Priority = Literal["auto", "off", "vllm", "sglang"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAiHttpConfig:
    """Configuration of the adapter of one engine.

    `priority`: whose convention the integer priority of requests follows: `vllm` (lower first) or `sglang` (higher
    first); `off` sends none, and `auto` goes by what the engine reports, which only SGLang does. `control_block`: file
    shared with H-MAS's scheduler plug-in in vLLM; None: not used. `admin_key`: sent to admin paths in place of
    `api_key`. `kv_events`: where the engine publishes the events of its KV cache; None: it does not.
    """

    facts: EngineFacts
    url: str
    api_key: str = field(default="", repr=False)
    admin_key: str = field(default="", repr=False)
    priority: Priority = "auto"
    control_block: Path | None = None
    kv_events: KvEventsConfig | None = None
    probe_period_s: float = 1.0
    reprobe_s: float = 0.05  # time until an engine that is suspected or down is checked again
    rewatch_s: float = 1.0  # time until a watch that ended by an error begins anew
    scrape_period_s: float = LIVE.scrape_s
    step_readings: int = round(LIVE.step_window_s / LIVE.scrape_s)  # scrapes over which the mean step is taken
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    steering: SteeringConfig = field(default_factory=SteeringConfig)
    breaker: BreakerConfig = field(default_factory=BreakerConfig)
    pool: PoolConfig = field(default_factory=PoolConfig)


def follower() -> "type[KvEvents]":
    """Returns what follows the events of a KV cache. Raises MissingExtra where its packages are not installed."""
    with needs("kv-events", "leave HMAS_KV_EVENTS and the engines' `kv_events` out"):
        from hmas.worker.adapters.kv_events import KvEvents  # loads msgspec
    return KvEvents


class OpenAiHttpAdapter:
    """Watches and steers one OpenAI-compatible engine.

    `post` receives an event when the engine goes up, goes down, or was sampled.
    """

    def __init__(self, config: OpenAiHttpConfig, post: Callable[[EngineEvent], None]) -> None:
        self._config = config
        self._post = post
        target = _Target.of(config)
        self._pool = HttpPool(target.host, target.port, target.tls, config.pool)
        self._monitor = EngineMonitor(self._pool, target.head, config.facts, config.monitor)
        self._breaker = Breaker(config.breaker)
        self._bridge: ControlBlockBridge | None = None
        if config.control_block:
            self._bridge = ControlBlockBridge(self.name, config.control_block, config.steering)
        self._cap = SglangCap(self.name, self._monitor.post, config.steering)
        self._kv_events = follower()(self.name, config.kv_events, post) if config.kv_events else None
        self._runs: dict[int, GrantedRun] = {}  # by identity
        self._suspected = asyncio.Event()  # makes the next health check come at once
        self._sample_due = asyncio.Event()  # makes the next sample come at once
        self._gave_up, self._hurried_s = False, float("-inf")  # runs since the last sample; when one came at once
        self._up = False
        self._kv_capacity_tokens = 1
        self._tokens = 0  # output tokens of runs that ended
        self._prompts = 0  # prompt tokens of runs that ended with an answer

    @property
    def name(self) -> str:
        return self._config.facts.name

    @property
    def up(self) -> bool:
        return self._up

    @property
    def plugin(self) -> bool:
        return self._bridge is not None

    def steer(self, n_run: int, b_token: int) -> None:
        if self._monitor.sglang is not None:
            self._cap.steer(n_run)
        elif self._bridge is not None:
            self._bridge.steer(n_run, b_token)

    async def run(self) -> None:
        while True:
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._keep_probing())
                    tasks.create_task(self._keep_sampling())
                    tasks.create_task(self._cap.run())
                    if self._bridge is not None:
                        tasks.create_task(self._bridge.run())
                    if self._kv_events is not None:
                        tasks.create_task(self._kv_events.run())
            except* Exception as errors:
                log.exception("engine_watch_failed", engine=self.name)
                self._breaker.trip(time.monotonic())
                self._went_down(f"the worker failed to watch it: {errors.exceptions[0]!r}")
            await asyncio.sleep(self._config.rewatch_s)

    async def close(self) -> None:
        await self._cap.restore()
        await self._pool.close()

    # --- what gateways run here ----------------------------------------------------------------------------------

    def add(self, run: GrantedRun) -> None:
        if run.urgency is not None:
            self._rank(run, run.urgency)
        self._runs[id(run)] = run

    def remove(self, run: GrantedRun, end: Ended | None) -> None:
        if self._runs.pop(id(run), None) is None:
            return
        self._tokens += max(run.output_tokens, end.output_tokens if end else 0)
        if end is not None and end.outcome is Outcome.FINISHED:
            self._prompts += end.prompt_tokens or run.prompt_tokens

    def judge(self, end: Ended) -> None:
        failed = end.status in (0, 200) or (end.status >= 500 and end.status != 503)  # 200: the answer broke off
        if end.unreached or end.stalled:  # an engine that gives no token may be up: the agent suspects it
            self._suspected.set()
        elif end.outcome is Outcome.FINISHED:
            self._breaker.succeeded()
        elif end.given_up:
            self._gave_up = True  # perhaps somebody has put it to sleep, as the next sample tells, which comes at once
            if time.monotonic() - self._hurried_s > self._config.scrape_period_s:
                self._hurried_s = time.monotonic()
                self._sample_due.set()
        elif end.outcome is Outcome.ENGINE_ERROR and failed:
            if self._breaker.failed(time.monotonic()):
                self._went_down(end.message)
            self._suspected.set()

    def _rank(self, run: GrantedRun, urgency: float) -> None:
        """Sets a run's priority in the engine's own convention; an engine that does not schedule by priority gets
        none."""
        if self._config.priority == "vllm":
            run.priority = vllm_priority(urgency)
            return
        higher_first = self._higher_first
        if higher_first is not None:
            waiting = [(r.urgency, r.level) for r in self._runs.values() if not r.output_tokens]
            run.level = sglang_level(
                urgency, [(u, level) for u, level in waiting if u is not None and level is not None]
            )
            run.priority = run.level if higher_first else TOP_LEVEL - run.level

    @property
    def _higher_first(self) -> bool | None:
        """Whether an SGLang engine serves higher priority levels first; None for an engine that is sent no levels."""
        if self._config.priority == "auto":
            return self._monitor.sglang.higher_first if self._monitor.sglang else None
        return True if self._config.priority == "sglang" else None

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
        except _UNUSABLE as error:
            certain = isinstance(error, Unreachable) and error.certain
            if self._breaker.usable and not certain and self._progress() > seen:
                return  # the engine answers slowly, but generates tokens
            if self._breaker.probe_failed(time.monotonic(), certain=certain) or not self._breaker.usable:
                self._went_down(str(error))
            return
        self._breaker.probed()
        self._kv_capacity_tokens = max(1, info.kv_capacity_tokens)
        if self._monitor.sglang is not None:
            self._cap.discovered(self._monitor.sglang)
        self._up = True
        log.info("engine_up", engine=self.name, kind=info.dialect, kv_capacity_tokens=info.kv_capacity_tokens)
        self._post(EngineWentUp(info))
        self._sample_due.set()

    def _progress(self) -> int:
        return self._tokens + sum(run.output_tokens for run in self._runs.values())

    def _went_down(self, reason: str) -> None:
        if self._up:
            self._up = False
            log.warning("engine_down", engine=self.name, reason=reason)
            self._post(EngineWentDown(self.name, reason))

    # --- samples -------------------------------------------------------------------------------------------------

    async def _keep_sampling(self) -> None:
        sampler = _Sampler(self.name, self._config.step_readings, paced=self.plugin)
        while True:
            try:
                async with asyncio.timeout(self._config.scrape_period_s):  # wait_for may swallow a cancellation
                    await self._sample_due.wait()
            except TimeoutError:
                pass
            self._sample_due.clear()
            if not self._breaker.usable:
                continue
            asked_s = time.monotonic()
            try:
                reading = await self._monitor.reading()
            except _UNUSABLE as error:
                log.debug("engine_not_scraped", engine=self.name, reason=repr(error))
                continue
            now_s = time.monotonic()
            if self._gave_up:
                self._gave_up = False
                awake = reading is None or reading.sleep_level is None
                if awake and self._breaker.failed(now_s):
                    self._went_down("it gave up one answer after another")
            decoding = sum(1 for run in self._runs.values() if run.output_tokens)
            if reading is not None:
                sample = sampler.sample(now_s, reading, decoding, age_s=now_s - asked_s)
            else:
                sample = sampler.sample(now_s, self._own_reading(), decoding, counted=False)
            self._post(sample)

    def _own_reading(self) -> scrape.Reading:
        """Returns an estimate of the load for engines without metrics, from what gateways tell of their runs there."""
        runs = self._runs.values()
        held = sum(run.prompt_tokens + run.output_tokens for run in runs)
        started = sum(run.prompt_tokens for run in runs if run.output_tokens)
        return scrape.Reading(
            running=len(runs),
            waiting=0,
            kv_usage=min(1.0, held / self._kv_capacity_tokens),
            preemptions=0,
            prompt_tokens=float(self._prompts + started),
            generation_tokens=float(self._progress()),
            gap_sum_s=None,
            gap_count=None,
        )


class _Sampler:
    """Derives an engine's rates from two successive readings, and its mean step from the last `step_readings`.

    The step is averaged because a single long prefill does not show utilisation: a request's TPOT averages over it.
    """

    def __init__(self, engine: str, step_readings: int, *, paced: bool = False) -> None:
        self._engine = engine
        self._paced = paced
        self._before: tuple[float, scrape.Reading] | None = None
        self._recent: deque[scrape.Reading] = deque(maxlen=step_readings)
        self._decoded: deque[tuple[float, float]] = deque(maxlen=step_readings)  # seconds of streams, their tokens
        self._step_s = 0.0
        self._counted = True

    def sample(
        self, now_s: float, reading: scrape.Reading, decoding: int, *, counted: bool = True, age_s: float = 0.0
    ) -> EngineSampled:
        """Returns a sample of the engine from a reading that was had at `now_s` and shows the engine not before `age_s`
        seconds ago. `counted`: the reading is the engine's own.

        `decoding`: the number of streams in decode. If the engine does not report its step, it is estimated from them,
        as each gets one token per step.
        """
        if counted is not self._counted:  # the two kinds of reading have different totals
            self._counted, self._before = counted, None
            self._recent.clear()
        before_s, before = self._before or (now_s, reading)
        self._before = (now_s, reading)
        elapsed_s = now_s - before_s
        decode = scrape.rate_per_s(before.generation_tokens, reading.generation_tokens, elapsed_s)
        gap_s = scrape.mean_gap_s(self._recent[0] if self._recent else reading, reading)
        self._recent.append(reading)
        self._decoded.append((decoding * elapsed_s, decode * elapsed_s))
        if gap_s is None and reading.gap_count is None:
            streams_s, tokens = map(sum, zip(*self._decoded, strict=True))
            gap_s = streams_s / tokens if tokens and streams_s else None
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
            counted=counted,
            age_s=age_s,
            paced=self._paced,
            sleep_level=reading.sleep_level,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """The address that requests to an engine go to, and the HTTP heads that they begin with."""

    host: str
    port: int
    tls: ssl.SSLContext | None
    prefix: str  # path before /v1
    get: str  # headers of a GET request
    post: str  # headers of a POST request to an admin path, except Content-Length

    @staticmethod
    def of(config: OpenAiHttpConfig) -> "_Target":
        """Returns the target of an engine's URL. Raises ValueError if the URL has no host, or is not HTTP or HTTPS."""
        url = urlsplit(config.url)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"engine URL {config.url!r} is unusable: give http://HOST:PORT or https://HOST[:PORT]")
        tls = ssl.create_default_context() if url.scheme == "https" else None
        common = f"Host: {url.netloc.rpartition('@')[2]}\r\nUser-Agent: hmas\r\nAccept-Encoding: identity\r\n"
        return _Target(
            host=url.hostname,
            port=url.port or (443 if tls else 80),
            tls=tls,
            prefix=url.path.rstrip("/").removesuffix("/v1"),
            get=common + _authorization(config.api_key),
            post=common + _authorization(config.admin_key or config.api_key) + "Content-Type: application/json\r\n",
        )

    def head(self, path: str, length: int | None) -> bytes:
        if length is None:
            return f"GET {self.prefix}{path} HTTP/1.1\r\n{self.get}\r\n".encode("latin-1")
        return f"POST {self.prefix}{path} HTTP/1.1\r\n{self.post}Content-Length: {length}\r\n\r\n".encode("latin-1")


def _authorization(key: str) -> str:
    return f"Authorization: Bearer {key}\r\n" if key else ""
