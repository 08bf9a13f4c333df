"""The gateway's shell: carries out the agent's effects. It sends requests to engines as workers grant them, relays the
answers, and tells the agent what happened.

A token costs one read from the engine, a count and one write to the client: no event, log or metric, except for the
first one. Every `LIVE.progress_s` the counts of all runs become one event.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol, assert_never

import orjson
import structlog

from hmas.contracts.execution import GatewayMessage, Grant, Load, Submit, WorkerMessage
from hmas.contracts.gateway import (
    ClientLeft,
    CognitionQueueEvent,
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    GatewayEvent,
    KeysEnded,
    NoteGrant,
    PublishGatewayTelemetry,
    PublishUse,
    Question,
    QuestionAsked,
    QuestionWithdrawn,
    QueuePlace,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RouteChosen,
    RunEnded,
    RunHandedOver,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
    ViewReceived,
)
from hmas.contracts.job import JobsTold, StageLinked
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.request import Request
from hmas.contracts.telemetry import GatewayTelemetry
from hmas.contracts.use import UseReport
from hmas.contracts.views import VShort
from hmas.gateway.agent.directory import ModelDirectory
from hmas.gateway.engines.body import run_body
from hmas.gateway.engines.engines import EngineDirectory, EngineRefused
from hmas.gateway.engines.proxied import ProxiedRun, Proxy
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.exchange import AttemptTrace, Exchange, RunTrace
from hmas.gateway.jobs import JobBook
from hmas.gateway.journal import RequestJournal, stage_told, timeline_json
from hmas.gateway.metrics import (
    BYPASS_ENGINES,
    BYPASS_RUNS,
    JOBS_RUNNING,
    LIVE_REQUESTS,
    SLOW_CLIENTS,
    STALLED_RUNS,
    WORKERS,
    count_call,
    count_job,
    count_linked,
    count_settled,
    pool_instruments,
    told_verdict,
)
from hmas.gateway.openai.body import Call
from hmas.gateway.openai.errors import ApiError, engine_error
from hmas.gateway.token_scale import TokenScale
from hmas.gateway.usage.book import UNKNOWN_USE, UsageBook, Used
from hmas.runtime.tracing import Attributes, Tracing

log = structlog.get_logger()

# Outcomes that are failures of the mesh and are logged; a refusal, or a client that went away, is none.
_TROUBLE = frozenset({Outcome.NO_ENGINE, Outcome.ENGINE_ERROR, Outcome.INTERNAL, Outcome.TIMED_OUT})


class Streams(Protocol):
    """The methods of `WorkerStreams` that the gateway's shell calls; a test may pass another object with them."""

    def ensure(self, heartbeat: WorkerHeartbeat) -> None: ...

    def send(self, worker: str, message: GatewayMessage) -> None: ...

    def is_local(self, worker: str) -> bool: ...


MAX_UNBOOKED = 65_536
BYPASS_SHOWN_S = 60.0  # so long an engine counts as in bypass after the last request that was placed there


@dataclass(frozen=True, slots=True)
class GatewayShellConfig:
    """Bounds of the gateway's shell.

    `max_buffered_bytes`: most bytes of one answer that wait for its client to read them, or for the end of an answer
    that is not streamed; beyond, the request is cancelled. `journal`: number of
    ended requests that are kept for `hmas why`.
    """

    gateway: str
    max_buffered_bytes: int = 8 * 2**20
    journal: int = 4096


class GatewayShell:
    """Keeps the exchange of each request that has not ended, and connects the agent with clients, workers and engines.

    `connect` must be called before the first request.
    """

    def __init__(
        self,
        config: GatewayShellConfig,
        directory: ModelDirectory,
        engines: EngineDirectory,
        publish: Callable[[GatewayTelemetry | UseReport], None],
        clock: Callable[[], float] = time.monotonic,
        tracing: Tracing | None = None,
        usage: UsageBook | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._tracing = tracing
        self._usage, self._wall_clock = usage or UsageBook(), wall_clock
        self._scale = TokenScale()
        self._unbooked: dict[str, Used] = {}  # of the requests that ended, until the agent reports how
        self._config, self._directory, self._engines = config, directory, engines
        self._publish, self._clock = publish, clock
        self._exchanges: dict[str, Exchange] = {}
        self._runs: dict[str, GatewayRun] = {}  # the present run of each request that has one
        self._journal = RequestJournal(config.journal)
        self._jobs = JobBook()
        self._connected: set[str] = set()
        self._bypassed: dict[tuple[str, str], float] = {}  # when a request was last placed without a worker, by engine
        LIVE_REQUESTS.set_function(lambda: len(self._exchanges))
        BYPASS_ENGINES.set_function(self._bypass_engines)
        JOBS_RUNNING.set_function(lambda: self._jobs.running)
        self._post: Callable[[GatewayEvent], None]
        self._streams: Streams
        self._post_cognition: Callable[[CognitionQueueEvent], None]
        self._place: Callable[[float, str], QueuePlace | None]

    def connect(
        self,
        post: Callable[[GatewayEvent], None],
        streams: Streams,
        post_cognition: Callable[[CognitionQueueEvent], None],
        place: Callable[[float, str], QueuePlace | None] = lambda now_s, request_id: None,
    ) -> None:
        self._post, self._streams, self._post_cognition, self._place = post, streams, post_cognition, place

    def _post_both(self, event: HeartbeatReceived | FromWorker | ViewReceived | StreamChanged) -> None:
        self._post_cognition(event)
        self._post(event)

    @property
    def live(self) -> int:
        return len(self._exchanges)

    @property
    def workers_connected(self) -> int:
        return len(self._connected)

    # --- clients ---

    def open(
        self,
        call: Call,
        request: Request,
        client_id: str,
        traceparent: str,
        key: str = "",
        job: str = "",
        job_budget_s: float | None = None,
        proxy: Proxy | None = None,
    ) -> Exchange:
        """Hands a request to the agent; returns its exchange, which has already ended if the agent refused. `job` is
        what the client calls its job, or empty, and `job_budget_s` what it allows for all of it, in s. `proxy` carries
        the request out, if the gateway itself does not."""
        pool = self._directory.resolve(request.model) or request.model
        exchange = Exchange(
            call=call,
            request=request,
            client_id=client_id,
            traceparent=traceparent,
            pool=pool,
            key=key,
            max_size=self._config.max_buffered_bytes,
            overflow=self.give_up,
            proxy=proxy,
            job_budget_s=job_budget_s,
        )
        self._exchanges[request.id] = exchange
        if self._tracing is not None:
            self._trace(self._tracing, exchange)
        content = "" if request.relegate else _content(request, call)
        self._post(RequestReceived(request, content, len(call.rest), job, job_budget_s))
        if exchange.call is not None:
            worker = exchange.attempts[-1].worker if exchange.attempts else ""
            self._post_cognition(QuestionAsked(Question(request, call.text, worker)))
        return exchange

    def _trace(self, tracing: Tracing, exchange: Exchange) -> None:
        request = exchange.request
        attributes: Attributes = {
            "hmas.request": request.id,
            "hmas.tenant": request.tenant,
            "gen_ai.request.model": request.model,
            "gen_ai.usage.input_tokens": request.prompt_tokens,
        }
        exchange.span = tracing.start("gateway", "server", exchange.traceparent, attributes)
        exchange.traceparent = exchange.span.traceparent

    def prompt_tokens(self, call: Call) -> int:
        """Returns the prompt's tokens, as the engines of its model are expected to count them."""
        pool = self._directory.resolve(call.model) or call.model
        return self._scale.scaled(pool, call.form.path, call.prompt_tokens)

    def place(self, exchange: Exchange) -> QueuePlace | None:
        """Returns where the request waits, None if it does not."""
        return self._place(self._clock(), exchange.request.id)

    def leave(self, exchange: Exchange) -> None:
        """Ends the exchange because its client went away or does not read its answer; the request is cancelled if it
        has not ended."""
        exchange.leave()
        if exchange.request.id in self._exchanges:
            self._post(ClientLeft(exchange.request.id))

    def end_keys(self, holds: Callable[[str], bool]) -> None:
        """Ends the requests of API keys that are not valid any more; `holds` tells whether the key with an id is."""
        ended = {key for key in {exchange.key for exchange in self._exchanges.values()} if not holds(key)}
        if ended:
            log.info("keys_ended", keys=sorted(ended))
            self._post(KeysEnded(tuple(x.request.id for x in self._exchanges.values() if x.key in ended)))

    def jobs(self) -> JobsTold:
        """Returns the jobs that this gateway has seen lately."""
        return self._jobs.told(self._clock(), self._config.gateway)

    def timeline(self, request_id: str) -> bytes | None:
        """Returns what happened to a request, as JSON, for `hmas why`; None if it is unknown.

        `request_id` is the mesh's id or the client's `X-Request-Id`. Known are requests that have not ended, and the
        last `journal` ended ones.
        """
        exchange = self._exchanges.get(request_id) or self._journal.find(request_id)
        if exchange is None:
            exchange = next((x for x in self._exchanges.values() if x.client_id == request_id), None)
        return None if exchange is None else timeline_json(exchange, self._config.gateway)

    def stages(self, job: str) -> list[dict[str, Any]]:
        """Returns the stages of a job that this gateway remembers, as plain data, for `hmas why`."""
        live = [x for x in self._exchanges.values() if x.stage is not None and x.stage.job == job]
        now_s, unix_s, name = self._clock(), self._wall_clock(), self._config.gateway
        return [
            stage_told(x, name, unix_s - (now_s - x.request.arrival_s)) for x in (*self._journal.stages(job), *live)
        ]

    # --- workers (StreamSink) ---

    def on_connected(self, worker: str, connected: bool, silent_s: float) -> None:
        if connected:
            self._connected.add(worker)
            self._bypassed = {place: at_s for place, at_s in self._bypassed.items() if place[0] != worker}
            self._engines.connected(worker, local=self._streams.is_local(worker))
        else:
            self._connected.discard(worker)
        WORKERS.set(len(self._connected))
        self._post_both(StreamChanged(worker, connected, silent_s))

    def on_message(self, worker: str, message: WorkerMessage) -> None:
        event = FromWorker(worker, message)
        if isinstance(message, Load):
            self._post_cognition(event)
        self._post(event)

    # --- engines (RunSink) ---

    def on_first(self, run: GatewayRun) -> None:
        exchange = self._exchanges[run.request_id]
        trace = exchange.runs[-1]
        exchange.first_s = trace.first_s = self._clock()
        if trace.span is not None:
            trace.span.event("first_token")
        exchange.call = None
        self._post(FirstTokenRelayed(run.request_id, run.number))

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        del self._runs[run.request_id]
        exchange = self._exchanges[run.request_id]
        exchange.end_of_run = end
        now_s = self._run_over(exchange, end.outcome)
        if end.outcome is Outcome.FINISHED and end.usage.prompt_tokens is not None:
            self._scale.learn(exchange.pool, exchange.path, exchange.estimate, end.usage.prompt_tokens)
        tokens = run.tokens if end.usage.output_tokens is None else end.usage.output_tokens
        decoded = max(run.tokens, tokens) - 1
        self._post(
            RunEnded(
                request_id=run.request_id,
                run=run.number,
                outcome=end.outcome,
                message=end.message,
                status=end.status,
                output_tokens=tokens if run.counted else None,
                prompt_tokens=end.usage.prompt_tokens,
                cached_tokens=end.usage.cached_tokens,
                tpot_s=(now_s - exchange.first_s) / decoded if exchange.first_s is not None and decoded > 0 else 0.0,
                retryable=end.retryable,
                busy=end.busy,
                unreached=end.unreached,
            )
        )

    def report_progress(self) -> None:
        """Tells the agent how many tokens each run has, and counts the jobs that are over; to be called every
        `LIVE.progress_s` seconds."""
        for job in self._jobs.over(self._clock()):
            count_job(job.lasted_s, job.calls, job.failed, job.budget_s)
        counts = tuple((request_id, run.tokens) for request_id, run in self._runs.items() if run.tokens)
        if counts:
            self._post(RunsProgressed(counts))

    def _bypass_engines(self) -> int:
        now_s = self._clock()
        return sum(now_s - placed_s < BYPASS_SHOWN_S for placed_s in list(self._bypassed.values()))

    # --- the bus and cognition ---

    def on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        self._directory.hear(heartbeat)
        self._engines.hear(heartbeat)
        self._streams.ensure(heartbeat)
        self._post_both(HeartbeatReceived(heartbeat))

    def on_view(self, view: VShort) -> None:
        self._post_both(ViewReceived(view))

    def on_annotated(self, answer: RequestAnnotated) -> None:
        exchange = self._exchanges.get(answer.request_id)
        if exchange is not None:
            exchange.annotation = answer.annotation
            self._post(answer)

    # --- effects ---

    def execute(self, effect: GatewayEffect) -> None:
        match effect:
            case ToWorker(worker, message):
                self._streams.send(worker, message)
                if isinstance(message, Submit):
                    self._submitted(worker, message)
            case StartRun():
                self._start(effect)
            case NoteGrant(worker, grant):
                self._note(worker, grant)
            case StopRun(request_id, number, stalled):
                self._stop(request_id, number, stalled)
            case Refuse():
                error = ApiError.of(
                    effect.outcome,
                    effect.message,
                    retry_after_s=effect.retry_after_s,
                    estimated_wait_s=effect.estimated_wait_s,
                    predicted_ttft_s=effect.predicted_ttft_s,
                )
                self._end(effect.request_id, effect.outcome, effect.message, 0, error)
            case StageLinked(request_id, stage):
                exchange = self._exchanges.get(request_id)
                if exchange is not None:
                    exchange.stage = stage
                    self._jobs.began(self._clock(), exchange.request, stage, exchange.job_budget_s)
                    count_linked(stage.linked)
            case RouteChosen(request_id):
                exchange = self._exchanges.get(request_id)
                if exchange is not None:
                    exchange.route = effect
            case Settle():
                self._settle(effect)
            case PublishGatewayTelemetry(telemetry):
                self._publish(telemetry)
                self._book(telemetry)
            case PublishUse(report):
                self._publish(report)
            case _:
                assert_never(effect)

    def _book(self, telemetry: GatewayTelemetry) -> None:
        pool, unix_s = self._known(telemetry.pool), self._wall_clock()
        for settled in telemetry.settled:
            used, told = self._unbooked.pop(settled.request_id, UNKNOWN_USE), told_verdict(settled)
            count_settled(pool, settled, told, used)
            self._usage.count(unix_s, used, settled, told)

    def _submitted(self, worker: str, submit: Submit) -> None:
        exchange = self._exchanges[submit.request.id]
        exchange.attempts.append(AttemptTrace(submit.attempt, worker, self._clock()))
        pool_instruments(exchange.pool).attempts.inc()
        if self._tracing is not None and exchange.queue_span is None:
            exchange.queue_span = self._tracing.start("queue", "internal", exchange.traceparent, {})

    def _note(self, worker: str, grant: Grant) -> None:
        exchange = self._exchanges.get(grant.request_id) or self._journal.find(grant.request_id)
        if exchange is not None:
            exchange.noted = worker, grant, self._clock()

    def _start(self, effect: StartRun) -> None:
        request_id, grant = effect.request_id, effect.grant
        exchange = self._exchanges[request_id]
        trace = RunTrace(worker=effect.worker, engine=effect.engine, grant=grant, started_s=self._clock(),
                         observed=effect.observed)  # fmt: skip
        exchange.runs.append(trace)
        exchange.end_of_run = None
        if grant is None and not effect.observed:
            BYPASS_RUNS.inc()
            self._bypassed[effect.worker, effect.engine] = trace.started_s
        traceparent = exchange.traceparent
        if self._tracing is not None:
            self._end_queue_span(exchange, "started")
            told: Attributes = {
                "hmas.worker": effect.worker,
                "hmas.engine": effect.engine,
                "hmas.bypass": grant is None and not effect.observed,
            }
            trace.span = self._tracing.start("engine", "client", traceparent, told)
            traceparent = trace.span.traceparent
        call = exchange.call
        assert call is not None, "a request runs again only before its first token"
        run: GatewayRun
        if exchange.proxy is not None:
            run = ProxiedRun(request_id, effect.run, self, form=call.form)
        elif exchange.request.stream:
            run = StreamedRun(request_id, effect.run, self, exchange.push, strip_usage=call.strip_usage, form=call.form)
        else:
            run = GatewayRun(request_id, effect.run, self, self._config.max_buffered_bytes, form=call.form)
        self._runs[request_id] = run
        try:
            client = self._engines.find(effect.worker, effect.engine)
        except EngineRefused as refused:
            run.fail(str(refused), unreached=True)
            return
        exchange.pool = self._directory.resolve(exchange.request.model) or exchange.pool  # known only now, perhaps
        body = run_body(self._directory.engine_name(call.model, exchange.pool), call.rest, grant, call.xargs)
        if isinstance(run, ProxiedRun) and exchange.proxy is not None:
            exchange.call = None
            self._post(RunHandedOver(request_id, effect.run))
            exchange.proxy.carry_out(run, client, body, traceparent)
        else:
            run.http = client.send(call.form.path, body, request_id, traceparent, run)

    def _stop(self, request_id: str, number: int, stalled: str) -> None:
        run = self._runs.get(request_id)
        if run is not None and run.number == number:
            del self._runs[request_id]
            run.stop()
            exchange = self._exchanges[request_id]
            self._run_over(exchange, Outcome.ENGINE_ERROR if stalled else Outcome.CANCELLED)
            if stalled:
                trace = exchange.runs[-1]
                STALLED_RUNS.inc()
                log.warning("run_stalled", request=request_id, client_request=exchange.client_id, worker=trace.worker,
                            engine=trace.engine, output_tokens=run.tokens, reason=stalled)  # fmt: skip

    def _run_over(self, exchange: Exchange, outcome: Outcome) -> float:
        """Records the end of the last run, and returns its instant."""
        trace = exchange.runs[-1]
        trace.ended_s, trace.outcome = self._clock(), outcome.value
        if trace.span is not None:
            trace.span.end(outcome.value, outcome not in (Outcome.FINISHED, Outcome.CANCELLED))
            trace.span = None
        return trace.ended_s

    def _end_queue_span(self, exchange: Exchange, outcome: str) -> None:
        if exchange.queue_span is not None:
            exchange.queue_span.end(outcome, False)
            exchange.queue_span = None

    def _settle(self, effect: Settle) -> None:
        exchange = self._exchanges[effect.request_id]
        last = exchange.end_of_run
        error: ApiError | None = None
        if effect.outcome is Outcome.FINISHED:
            if last is not None and last.data:
                exchange.direct = None  # so that the last bytes are written together with the end of the answer
                exchange.push(last.data)
        elif effect.outcome is Outcome.ENGINE_REFUSED and last is not None:
            error = engine_error(last.status, last.data)
        else:
            error = ApiError.of(effect.outcome, effect.message, retry_after_s=effect.retry_after_s)
        self._end(effect.request_id, effect.outcome, effect.message, effect.output_tokens, error)

    def _end(self, request_id: str, outcome: Outcome, message: str, tokens: int, error: ApiError | None) -> None:
        exchange = self._exchanges.pop(request_id)
        if exchange.annotation is None:
            self._post_cognition(QuestionWithdrawn(request_id))
        now_s = exchange.settled_s = self._clock()
        exchange.outcome, exchange.message, exchange.output_tokens = outcome, message, tokens
        self._await_telemetry(exchange)
        if exchange.stage is not None:
            cached = self._unbooked[request_id].cached_tokens
            began_s = exchange.request.arrival_s
            self._jobs.ended(now_s, exchange.stage.job, now_s - began_s, outcome is Outcome.FINISHED, tokens, cached)
            count_call(exchange.request.prompt_tokens if exchange.runs else 0, cached)
        exchange.end_of_run = None
        exchange.call = None
        if not exchange.done:
            exchange.end(error)
        exchange.proxy = None  # the journal keeps the exchange, and need not keep the request's body
        self._count(exchange, outcome, now_s)
        self._journal.keep(exchange)
        if exchange.span is not None:
            self._end_queue_span(exchange, outcome.value)
            used = {"gen_ai.usage.output_tokens": tokens, "hmas.attempts": len(exchange.attempts)}
            exchange.span.end(outcome.value, outcome in _TROUBLE, used)
        if outcome in _TROUBLE:
            log.warning("request_failed", request=request_id, client_request=exchange.client_id, outcome=outcome.value,
                        message=message, tenant=exchange.request.tenant, output_tokens=tokens)  # fmt: skip

    def _await_telemetry(self, exchange: Exchange) -> None:
        """Keeps what the agent does not know of a request until the agent reports how it was judged, which it never
        does if no pool has the request's model."""
        if len(self._unbooked) >= MAX_UNBOOKED:
            del self._unbooked[next(iter(self._unbooked))]
        last = exchange.end_of_run
        exchange.cached_tokens = last.usage.cached_tokens if last is not None else None
        cached_tokens = exchange.cached_tokens or 0
        self._unbooked[exchange.request.id] = Used(exchange.key, bool(exchange.runs), cached_tokens)

    def _count(self, exchange: Exchange, outcome: Outcome, now_s: float) -> None:
        instruments = pool_instruments(self._known(exchange.pool))
        instruments.outcomes[outcome].inc()
        if exchange.output_tokens:
            instruments.output_tokens.inc(exchange.output_tokens)
        if exchange.first_s is not None:
            instruments.ttft.observe(exchange.first_s - exchange.request.arrival_s)
        if outcome is Outcome.FINISHED:
            instruments.total.observe(now_s - exchange.request.arrival_s)

    def _known(self, pool: str) -> str:
        """Returns the pool as a metric's label, or "" if no such pool is known: clients can invent any number of model
        names, and each label costs memory."""
        return pool if self._directory.resolve(pool) is not None else ""

    def give_up(self, exchange: Exchange) -> None:
        """Cancels a request whose client does not read its answer."""
        SLOW_CLIENTS.inc()
        log.info("client_too_slow", request=exchange.request.id, buffered=exchange.size)
        self.leave(exchange)

    async def close(self) -> None:
        """Closes the connections to all engines; runs that have not ended do so without a word."""
        await self._engines.close()


def _content(request: Request, call: Call) -> str:
    """Returns a digest of tenant, path, model and body, by which a refused request is recognised when it is sent
    again."""
    digest = blake2b(call.rest, digest_size=16)
    digest.update(orjson.dumps([request.tenant, call.form.path, call.model, call.xargs]))
    return digest.hexdigest()
