"""Collects what happened to the worker's requests since its last telemetry report, and makes the report's records."""

from math import inf

from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.outcome import Outcome
from hmas.contracts.request import TaskType
from hmas.contracts.telemetry import (
    EngineSample,
    FirstTokenSeen,
    RequestDispatched,
    RequestFinished,
    RequestQueued,
    RequestRunning,
    SplitLegs,
)
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import EntryState, QueueEntry


def task_of(entry: QueueEntry) -> TaskType:
    return TaskType.UNKNOWN if entry.annotation is None else entry.annotation.tags.task


def _legs(entry: QueueEntry) -> SplitLegs | None:
    granted_s = entry.granted_s
    if granted_s is None or not entry.prefill_on:
        return None
    computed_s, first_s = (
        None if at_s is None else max(0.0, at_s - granted_s) for at_s in (entry.computed_s, entry.first_token_s)
    )
    return SplitLegs(prefill_engine=entry.prefill_on, computed_s=computed_s, first_s=first_s)


class TelemetryReports:
    """Holds the events since the last report, each with its instant; in the report instants become ages in seconds.

    The agent reports as soon as they are `full` or `due`, so that there are at most `max_events` and those of one
    step.
    """

    def __init__(self, period_s: float, max_events: int, running_period_s: float, tags_within_s: float) -> None:
        self._tags_within_s = tags_within_s
        self._period_s = period_s
        self._max_events = max_events
        self._running_period_s = running_period_s
        self._reported_s: float | None = None
        self._running_reported_s: float | None = None
        self._count = 0
        self._queued: list[tuple[float, QueueEntry]] = []
        self._granted: list[tuple[float, QueueEntry, str, float]] = []
        self._first_tokens: list[tuple[float, QueueEntry, str, float]] = []
        self._finished: list[tuple[float, QueueEntry, EngineKind, Outcome, float, float]] = []

    @property
    def full(self) -> bool:
        return self._count >= self._max_events

    def due(self, now_s: float) -> bool:
        """Returns whether a report period has passed since the last report; 1 % less counts too, because timers may
        fire early."""
        return self._reported_s is None or now_s - self._reported_s >= self._period_s * 0.99

    def queued(self, now_s: float, entry: QueueEntry) -> None:
        self._queued.append((now_s, entry))
        self._count += 1

    def granted(self, now_s: float, entry: QueueEntry) -> None:
        self._granted.append((now_s, entry, entry.engine, now_s - entry.enqueued_s))
        self._count += 1

    def first_token(self, now_s: float, entry: QueueEntry, prefill_s: float) -> None:
        self._first_tokens.append((now_s, entry, entry.engine, prefill_s))
        self._count += 1

    def finished(
        self, now_s: float, entry: QueueEntry, kind: EngineKind, outcome: Outcome, prefill_s: float, tpot_s: float
    ) -> None:
        """Records that a request ended; `kind` is that of its engine. `prefill_s` and `tpot_s` are 0 if the request had
        not come so far, or its answer was not streamed, so that nobody saw its first token."""
        self._finished.append((now_s, entry, kind, outcome, prefill_s, tpot_s))
        self._count += 1

    def close(self, now_s: float) -> None:
        """Forgets the events, which were reported at `now_s`."""
        self._reported_s = now_s
        self._count = 0
        self._queued = [each for each in self._queued if self._awaits_tags(now_s, *each)]
        self._granted, self._first_tokens, self._finished = [], [], []

    def _awaits_tags(self, now_s: float, at_s: float, entry: QueueEntry) -> bool:
        """Returns whether a request is to be told later, because its tags may still come."""
        untagged = entry.annotation is None and entry.state is not EntryState.ENDED
        return untagged and now_s - at_s < self._tags_within_s

    def queued_records(self, now_s: float) -> tuple[RequestQueued, ...]:
        return tuple(
            RequestQueued(
                request_id=e.request.id,
                tenant=e.request.tenant,
                task=task_of(e),
                prompt_tokens=e.request.prompt_tokens,
                predicted_output_tokens=e.predicted_tokens,
                predicted_output_tokens_p90=e.predicted_p90,
                tpot_slo_s=e.slo.tpot_s,
                needed_tpot_s=e.needed_tpot_s if 0.0 < e.needed_tpot_s < inf else 0.0,
                waits=e.state in (EntryState.PARKED, EntryState.QUEUED),
                age_s=now_s - at_s,
            )
            for at_s, e in self._queued
            if not self._awaits_tags(now_s, at_s, e)
        )

    def granted_records(self, now_s: float) -> tuple[RequestDispatched, ...]:
        return tuple(
            RequestDispatched(
                request_id=e.request.id, tenant=e.request.tenant, engine=engine, waited_s=waited_s, age_s=now_s - at_s
            )
            for at_s, e, engine, waited_s in self._granted
        )

    def first_token_records(self, now_s: float) -> tuple[FirstTokenSeen, ...]:
        return tuple(
            FirstTokenSeen(
                request_id=e.request.id,
                tenant=e.request.tenant,
                task=task_of(e),
                engine=engine,
                ttft_s=at_s - e.request.arrival_s,
                prefill_s=prefill_s,
                ttft_slo_s=e.slo.ttft_s,
                age_s=now_s - at_s,
            )
            for at_s, e, engine, prefill_s in self._first_tokens
        )

    def finished_records(self, now_s: float) -> tuple[RequestFinished, ...]:
        return tuple(
            RequestFinished(
                request_id=e.request.id,
                tenant=e.request.tenant,
                task=task_of(e),
                engine=e.engine,
                outcome=outcome,
                prompt_tokens=e.request.prompt_tokens,
                output_tokens=e.output_tokens,
                predicted_output_tokens_p90=e.admitted_p90,
                upper_output_tokens=e.upper_output_tokens,
                predictor=e.admitted_by,
                run_s=0.0 if e.granted_s is None else at_s - e.granted_s,
                prefill_s=prefill_s,
                engine_wait_s=e.engine_wait_s(prefill_s),
                kind=kind,
                tpot_s=tpot_s,
                tpot_slo_s=e.slo.tpot_s,
                censored=outcome is not Outcome.FINISHED,
                age_s=now_s - at_s,
                legs=_legs(e),
            )
            for at_s, e, kind, outcome, prefill_s, tpot_s in self._finished
        )

    def running_records(self, now_s: float, engines: list[EngineState]) -> tuple[RequestRunning, ...]:
        """Returns a record of every request in flight if `running_period_s` has passed since the last time, otherwise
        nothing."""
        last_s = self._running_reported_s
        if last_s is not None and now_s - last_s < self._running_period_s * 0.99:
            return ()
        self._running_reported_s = now_s
        return tuple(
            RequestRunning(
                request_id=e.request.id,
                engine=engine.name,
                prompt_tokens=e.request.prompt_tokens,
                output_tokens=e.output_tokens,
                predicted_output_tokens_p90=e.admitted_p90,
                upper_output_tokens=e.upper_output_tokens,
                predictor=e.admitted_by,
                run_s=0.0 if e.granted_s is None else now_s - e.granted_s,
                tenant=e.request.tenant,
            )
            for engine in engines
            for e in engine.running.values()
        )

    def engine_sample(self, now_s: float, engine: EngineState) -> EngineSample:
        sample, room = None if engine.life.asleep else engine.counts.sample, engine.step_room
        in_flight = len(engine.running)
        elapsed_s = 0.0 if self._reported_s is None else now_s - self._reported_s
        busy_s = engine.books.take_busy_s(now_s)
        return EngineSample(
            engine=engine.name,
            up=engine.life.answers,
            running=sample.running if sample else in_flight,
            waiting=sample.waiting if sample else 0,
            kv_usage=sample.kv_usage if sample else 0.0,
            kv_capacity_tokens=engine.info.kv_capacity_tokens,
            preemptions_total=sample.preemptions_total if sample else 0,
            step_s=sample.step_s if sample else 0.0,
            prefill_tokens_per_s=sample.prefill_tokens_per_s if sample else 0.0,
            decode_tokens_per_s=sample.decode_tokens_per_s if sample else 0.0,
            n_run=engine.n_run,
            b_token=engine.b_token,
            utilisation=engine.utilisation(now_s),
            busy=min(1.0, busy_s / elapsed_s) if elapsed_s > 0.0 else float(in_flight > 0),
            b_saturated=engine.regulator.saturated,
            suspected=engine.life.suspected,
            time_used=room.used_s / room.room_s if room.room_s > 0.0 else 0.0,
            asleep=engine.life.asleep,
        )
