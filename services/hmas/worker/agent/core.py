"""The worker's parts, and the ways a request leaves it."""

from collections import OrderedDict
from math import inf

from hmas.contracts.outcome import OUTCOME_TABLE, Outcome
from hmas.contracts.worker import Abort, Conclude, Handback, Reject, Timeline, WorkerEffect
from hmas.worker.agent.admission import AdmissionGate
from hmas.worker.agent.applications import Applications
from hmas.worker.agent.config import CYCLE_S, RandomSource, WorkerConfig
from hmas.worker.agent.controls import ControlState
from hmas.worker.agent.engine_state import EngineState
from hmas.worker.agent.entry import EntryState, QueueEntry
from hmas.worker.agent.ledger import TelemetryLedger
from hmas.worker.agent.length_bias import LengthBias
from hmas.worker.agent.meter import ServiceMeter, retry_after_s
from hmas.worker.agent.prior import Prior
from hmas.worker.agent.queue import RequestQueue
from hmas.worker.agent.service_view import ServiceView

FLOOR_RISE = 0.005  # of the way to each prediction above it
MOST_LAG_S = 0.5  # more is a process that was stopped for a while, and is over
REMEMBERED = 8192  # ended attempts, so that a repeated Submit is not served twice


class WorkerCore:
    """What the handlers of events share. `now_s` and `effects` are those of the current step."""

    def __init__(self, config: WorkerConfig, draw: RandomSource) -> None:
        self.config = config
        self.pool = RequestQueue(config.max_queued, config.max_queued_tokens, draw)
        self.fleet: dict[str, EngineState] = {}
        self.up: list[EngineState] = []
        self.gate = AdmissionGate(config.delta_frag)
        self.controls = ControlState(config.worker, config.pool)
        self.prior = Prior(config.prior)
        self.applications = Applications()
        self.length_bias = LengthBias()
        self.meter = ServiceMeter()
        self.ledger = TelemetryLedger(
            config.telemetry_period_s, config.telemetry_events, config.running_report_period_s
        )
        self.prefill_floor_s = inf  # least predicted prefill lately: what a step costs by itself
        self.prior_floor_s = inf  # the same of the prior, which learns how long first tokens take, not why
        self.lag_s = 0.0  # how far this process is behind its engines: as late as its last cycle came
        self.draining = False
        self.engineless_since_s: float | None = None
        self.now_s = 0.0
        self.effects: list[WorkerEffect] = []
        self._arrivals = 0
        self._cycled_s = inf
        self._ended: OrderedDict[str, int] = OrderedDict()  # request id: attempt

    def next_seq(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def ended_attempt(self, request_id: str) -> int:
        """The last attempt of a request that left lately; -1 if none did."""
        return self._ended.get(request_id, -1)

    def see_cycle(self) -> None:
        self.lag_s = min(MOST_LAG_S, max(0.0, self.now_s - self._cycled_s - CYCLE_S))
        self._cycled_s = self.now_s

    # --- estimates

    def cold_speed(self) -> float:
        return self.config.cold_speed_share * sum(engine.cap for engine in self.up)

    def queue_wait_s(self) -> float:
        """Until what is queued now is served."""
        return self.meter.wait_s(self.pool.queued_s, self.cold_speed())

    def backlog_s(self) -> float:
        """Until all that is held now is served."""
        running_s = sum(e.remaining_s for engine in self.fleet.values() for e in engine.running.values())
        return self.meter.wait_s(self.pool.queued_s + running_s, self.cold_speed())

    def see_prefill(self, predicted_s: float) -> None:
        """The floor falls at once and rises slowly, so that it follows a predictor that has learnt better."""
        self.prefill_floor_s = _floor(self.prefill_floor_s, predicted_s)

    def see_prior(self, ttft_s: float) -> None:
        self.prior_floor_s = _floor(self.prior_floor_s, ttft_s)

    def prefill_s(self, entry: QueueEntry) -> float:
        """What its prompt adds to the steps of an engine, which costs a step anyway while it decodes."""
        floor_s = self.prefill_floor_s
        if entry.annotation is None:
            floor_s = max(floor_s, self.prior_floor_s)
        return max(0.0, entry.prefill_s - floor_s)

    def service_view(self) -> ServiceView:
        return ServiceView(self.now_s, tuple(engine.occupancy(self.now_s) for engine in self.up), self.prefill_floor_s)

    # --- ways out; each takes the request from pool and engine and says so once

    def refuse(
        self, request_id: str, attempt: int, gateway: str, outcome: Outcome, message: str,
        promise_s: float | None = None,
    ) -> None:  # fmt: skip
        """Never dispatched, not in the pool (any more). `promise_s`: when there is a place for it."""
        self._remember(request_id, attempt)
        wait_s = self.queue_wait_s() if promise_s is None else promise_s
        retry_s = retry_after_s(wait_s) if OUTCOME_TABLE[outcome].retry_helps else None
        self.effects.append(Reject(request_id, attempt, gateway, outcome, message, retry_s))

    def reject(self, entry: QueueEntry, outcome: Outcome, message: str) -> None:
        """Queued and cannot be served here. What was dispatched before has ended as a failure, not a refusal."""
        if entry.tried:
            self.conclude(entry, outcome, message)
            return
        promise_s = self.pool.promise_s(entry) if outcome is Outcome.SLO_UNREACHABLE else None
        self._leave(entry, outcome)
        self.refuse(entry.request.id, entry.attempt, entry.gateway, outcome, message, promise_s)

    def hand_back(self, entry: QueueEntry) -> None:
        """Queued; the gateway may route it again."""
        self.pool.remove(entry)
        self._remember(entry.request.id, entry.attempt)
        self.effects.append(Handback(entry.request.id, entry.attempt, entry.gateway))

    def drop(self, entry: QueueEntry, outcome: Outcome, message: str) -> None:
        """Ends it wherever it is; a running one is aborted."""
        if entry.state is EntryState.RUNNING:
            self.effects.append(Abort(entry.request.id, entry.engine))
        self.conclude(entry, outcome, message)

    def conclude(self, entry: QueueEntry, outcome: Outcome, message: str) -> None:
        """It left for good; the engine, if any, has let go of it."""
        if entry.state is EntryState.RUNNING:
            self.fleet[entry.engine].release(self.now_s, entry)
            self.pool.account(entry, entry.received_service, final=True)
        self._leave(entry, outcome)
        self._remember(entry.request.id, entry.attempt)
        self.effects.append(
            Conclude(
                entry.request.id, entry.attempt, entry.gateway, outcome, message, entry.output_tokens,
                self._timeline(entry),
            )
        )  # fmt: skip

    def _leave(self, entry: QueueEntry, outcome: Outcome) -> None:
        self.pool.remove(entry)
        prefill_s, tpot_s = self._latencies(entry)
        self.ledger.finished(self.now_s, entry, outcome, prefill_s, tpot_s)

    def _latencies(self, entry: QueueEntry) -> tuple[float, float]:
        """Dispatch to first token, and time per further token; zeros where unknown."""
        if entry.first_token_s is None or entry.dispatched_s is None:
            return 0.0, 0.0
        further = entry.output_tokens - 1
        tpot_s = (self.now_s - entry.first_token_s) / further if further > 0 else 0.0
        return entry.first_token_s - entry.dispatched_s, tpot_s

    def _timeline(self, entry: QueueEntry) -> Timeline:
        start_s = entry.enqueued_s
        return Timeline(
            worker=self.config.worker,
            engine=entry.engine,
            topology=entry.topology,
            queued_s=(self.now_s if entry.dispatched_s is None else entry.dispatched_s) - start_s,
            first_token_s=0.0 if entry.first_token_s is None else entry.first_token_s - start_s,
            finished_s=self.now_s - start_s,
            queue_length=entry.queue_length,
            overtaken=entry.overtaken,
            switches=self.pool.switches - entry.switches_before,
            upper_output_tokens=entry.upper_output_tokens,
            relegated=entry.relegated,
        )

    def _remember(self, request_id: str, attempt: int) -> None:
        self._ended[request_id] = attempt
        self._ended.move_to_end(request_id)
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)


def _floor(floor_s: float, seen_s: float) -> float:
    return seen_s if seen_s < floor_s else floor_s + FLOOR_RISE * (seen_s - floor_s)
