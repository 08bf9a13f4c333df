"""The relay: it sends requests to engines, relays the answers, and tells the agent what became of them.

A token costs one read from the engine, a count and one write to the client: no event, log or metric, except for the
first one. Every `LIVE.progress_s` the counts of all runs become one event.
"""

from collections.abc import Callable

from hmas.contracts.execution import Grant
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    GatewayEvent,
    GoOn,
    PromptComputed,
    RunEnded,
    RunHandedOver,
    RunsProgressed,
    StartRun,
    StopRun,
)
from hmas.contracts.outcome import Outcome
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.engines.body import run_body
from hmas.gateway.engines.engines import EngineClient, EngineDirectory, EngineRefused
from hmas.gateway.engines.paired_runs import PromptLeg, paired_body
from hmas.gateway.engines.proxied import ProxiedRun
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.engines.split_runs import FirstLeg, Handed, first_leg_body, second_leg_body
from hmas.gateway.exchange import Exchange, RunTrace
from hmas.gateway.openai.body import Call
from hmas.gateway.token_scale import TokenScale
from hmas.gateway.witness import Witness


class EngineRelay:
    """Keeps the present run of each request that has one."""

    def __init__(
        self,
        directory: ModelDirectory,
        engines: EngineDirectory,
        witness: Witness,
        max_buffered_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._directory, self._engines, self._witness = directory, engines, witness
        self._max_buffered_bytes, self._clock = max_buffered_bytes, clock
        self._scale = TokenScale()
        self._runs: dict[str, tuple[GatewayRun, Exchange]] = {}  # by request
        self._legs: dict[GatewayRun, FirstLeg | PromptLeg] = {}  # of the runs that are split
        self._post: Callable[[GatewayEvent], None]

    def connect(self, post: Callable[[GatewayEvent], None]) -> None:
        self._post = post

    def prompt_tokens(self, call: Call) -> int:
        """Returns the prompt's tokens, as the engines of its model are expected to count them."""
        pool = self._directory.resolve(call.model) or call.model
        return self._scale.scaled(pool, call.form.path, call.prompt_tokens)

    def start(self, exchange: Exchange, effect: StartRun) -> None:
        """Sends the request of an exchange to an engine."""
        request_id, grant = effect.request_id, effect.grant
        prefill = grant.prefill if grant is not None else ""
        exchange.runs.append(
            RunTrace(worker=effect.worker, engine=effect.engine, grant=grant, started_s=self._clock(),
                     kind=self._engines.kind(effect.worker, effect.engine), observed=effect.observed, prefill=prefill)
        )  # fmt: skip
        exchange.end_of_run = None
        self._witness.started(exchange)
        call = exchange.call
        assert call is not None, "a request runs again only before its first token"
        run = self._new_run(exchange, call, effect.run)
        self._runs[request_id] = run, exchange
        exchange.pool = self._directory.resolve(exchange.request.model) or exchange.pool  # known only now, perhaps
        body = run_body(self._directory.engine_name(call.model, exchange.pool), call.rest, grant, call.xargs, call.seed)
        try:
            if grant is None or not prefill:
                self._answer(run, exchange, call, self._engines.find(effect.worker, effect.engine), body)
            elif grant.bootstrap_port:
                self._send_pair(run, exchange, effect, grant, body)
            else:
                leg = self._legs[run] = FirstLeg(run, lambda: self._computed(run, leg.handed))
                client = self._engines.find(effect.worker, prefill)
                first = first_leg_body(call.form.path, body)
                run.http = client.send(call.form.path, first, request_id, exchange.traceparent, leg)
        except EngineRefused as refused:
            run.fail(str(refused), unreached=True)

    def _answer(
        self, run: GatewayRun, exchange: Exchange, call: Call, client: EngineClient, body: tuple[bytes, bytes]
    ) -> None:
        """Sends the body whose answer is the client's, or has the proxy do so."""
        if isinstance(run, ProxiedRun) and exchange.proxy is not None:
            exchange.call = None
            self._post(RunHandedOver(run.request_id, run.number))
            exchange.proxy.carry_out(run, client, body, exchange.traceparent)
        else:
            run.http = client.send(call.form.path, body, run.request_id, exchange.traceparent, run)

    def _send_pair(
        self, run: GatewayRun, exchange: Exchange, effect: StartRun, grant: Grant, body: tuple[bytes, bytes]
    ) -> None:
        """Sends a request to both of its engines at once. Raises EngineRefused."""
        call, name, number = exchange.call, run.request_id, run.number
        assert call is not None, "a request runs again only before its first token"
        leg = self._legs[run] = PromptLeg(
            run, lambda cached: self._post(PromptComputed(name, number, cached)), self._max_buffered_bytes,
            form=call.form, stream=call.stream,
        )  # fmt: skip
        try:
            prefill = self._engines.find(effect.worker, grant.prefill)
        except EngineRefused as refused:
            leg.fail(str(refused), unreached=True)
            return
        body = paired_body(body, prefill.target, grant.bootstrap_port)
        leg.reader.http = prefill.send(exchange.path, body, name, exchange.traceparent, leg.reader)
        self._answer(run, exchange, call, self._engines.find(effect.worker, effect.engine), body)

    def _computed(self, run: GatewayRun, handed: Handed | None) -> None:
        _, exchange = self._runs[run.request_id]
        exchange.runs[-1].computed_s = self._clock()
        self._post(PromptComputed(run.request_id, run.number, handed.cached_tokens if handed else None))

    def go_on(self, effect: GoOn) -> None:
        """Sends a request whose prompt is computed to the engine that answers it."""
        present = self._runs.get(effect.request_id)
        if present is None or present[0].number != effect.run or present[0] not in self._legs:
            return
        run, exchange = present
        leg = self._legs[run]
        call, handed, trace = exchange.call, leg.handed if isinstance(leg, FirstLeg) else None, exchange.runs[-1]
        if call is None or handed is None:
            raise RuntimeError(
                f"request {run.request_id} goes on before its first leg is over, or after its first token"
            )
        trace.engine, trace.went_on_s = effect.engine, self._clock()
        try:
            client = self._engines.find(effect.worker, effect.engine)
        except EngineRefused as refused:
            run.fail(str(refused), unreached=True)
            return
        model = self._directory.engine_name(call.model, exchange.pool)
        body = run_body(model, call.rest, trace.grant, call.xargs, call.seed)
        run.tell_cached(handed.told)
        self._answer(run, exchange, call, client, second_leg_body(body, handed, effect.due_in_s))

    def _new_run(self, exchange: Exchange, call: Call, number: int) -> GatewayRun:
        request_id, form, most = exchange.request.id, call.form, exchange.request.max_tokens
        if exchange.proxy is not None:
            return ProxiedRun(request_id, number, self, form=form)
        if exchange.request.stream:
            return StreamedRun(
                request_id, number, self, exchange.push, strip_usage=call.strip_usage, form=form, max_tokens=most
            )
        return GatewayRun(request_id, number, self, self._max_buffered_bytes, form=form, max_tokens=most)

    def stop(self, effect: StopRun) -> None:
        """Closes the connection to the engine, unless the run has ended."""
        present = self._runs.get(effect.request_id)
        if present is None or present[0].number != effect.run:
            return
        run, exchange = self._runs.pop(effect.request_id)
        leg = self._legs.pop(run, None)
        if leg is not None:
            leg.stop()
        run.stop()
        outcome = Outcome.ENGINE_ERROR if effect.stalled else Outcome.CANCELLED
        self._run_over(exchange, run, outcome, effect.stalled)

    def _run_over(self, exchange: Exchange, run: GatewayRun, outcome: Outcome, stalled: str = "") -> float:
        """Records the end of the last run, and returns its instant."""
        trace, now_s = exchange.runs[-1], self._clock()
        trace.ended_s, trace.outcome, trace.output_tokens, trace.stalled = now_s, outcome.value, run.tokens, stalled
        self._witness.ended(exchange)
        return now_s

    def output_tokens(self, request_id: str) -> int:
        """Returns how many output tokens of a request its present run has relayed; 0 if it has none."""
        present = self._runs.get(request_id)
        return 0 if present is None else present[0].tokens

    def report_progress(self) -> None:
        """Tells the agent how many tokens each run has; to be called every `LIVE.progress_s` seconds."""
        counts = tuple((request_id, run.tokens) for request_id, (run, _) in self._runs.items() if run.tokens)
        if counts:
            self._post(RunsProgressed(counts))

    # --- RunSink ---

    def on_first(self, run: GatewayRun) -> None:
        _, exchange = self._runs[run.request_id]
        exchange.first_s = exchange.runs[-1].first_s = self._clock()
        self._witness.first(exchange)
        exchange.call = None
        self._post(FirstTokenRelayed(run.request_id, run.number))

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        _, exchange = self._runs.pop(run.request_id)
        leg, cached = self._legs.pop(run, None), end.usage.cached_tokens
        if isinstance(leg, FirstLeg) and leg.handed is not None:
            cached = leg.handed.cached_tokens
        if leg is not None:
            leg.stop()
        exchange.end_of_run = end
        now_s = self._run_over(exchange, run, end.outcome)
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
                cached_tokens=cached,
                tpot_s=(now_s - exchange.first_s) / decoded if exchange.first_s is not None and decoded > 0 else 0.0,
                retryable=end.retryable,
                busy=end.busy,
                unreached=end.unreached,
                given_up=end.given_up,
                at_prefill=leg is not None and leg.blames(run, end),
            )
        )
