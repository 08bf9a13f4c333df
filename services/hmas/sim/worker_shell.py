"""The simulator's shell around a worker agent: it turns the agent's effects into later events of its engines and of the
gateway."""

from collections import deque
from collections.abc import Callable
from typing import Any

from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import EngineInfo
from hmas.contracts.worker import (
    Abort,
    Conclude,
    ControlExpired,
    CycleTicked,
    Dispatch,
    EngineFailed,
    EngineFinished,
    EngineSampled,
    EngineWentUp,
    FirstTokenReceived,
    Handback,
    HeartbeatDue,
    ProgressSampled,
    PublishHeartbeat,
    PublishTelemetry,
    Reject,
    SteerEngine,
    TopologySwitched,
)
from hmas.engine.core import EngineCore
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.sequence import AddResult
from hmas.engine.core.step import EngineStats, StepResult
from hmas.sim.engine import SimEngine
from hmas.sim.ports import GatewayMessage, MeshPort
from hmas.sim.result import TopologySpan
from hmas.worker.agent.agent import WorkerAgent, WorkerConfig

Handler = Callable[[Any], None]


class SimWorker:
    """A simulated worker with its engines. It knows requests by id and reads their data from the mesh's journeys."""

    def __init__(self, mesh: MeshPort, config: WorkerConfig, agent: WorkerAgent, cores: dict[str, EngineCore]) -> None:
        self.name = config.worker
        self.agent = agent
        self.config = config
        self.engines = {name: SimEngine(mesh.heap, core, name, self._stepped) for name, core in cores.items()}
        self.spans: list[TopologySpan] = []
        self._mesh = mesh
        self._heap = mesh.heap
        self._delays = mesh.setup.delays
        self._placed: dict[str, str] = {}  # request id: engine, from its dispatch until it ends there or is aborted
        self._last_stats: dict[str, EngineStats] = {}
        window = max(1, round(mesh.setup.cadences.step_window_s / mesh.setup.cadences.scrape_s))
        self._step_marks = {name: deque([(0, 0.0)], maxlen=window + 1) for name in cores}
        self._handlers: dict[type, Handler] = {
            Dispatch: self._dispatch,
            Abort: self._abort,
            Conclude: self._conclude,
            Reject: self._reject,
            Handback: self._hand_back,
            PublishTelemetry: lambda e: mesh.publish_worker(e.telemetry),
            PublishHeartbeat: lambda e: mesh.publish(e.heartbeat),
            TopologySwitched: self._switched,
            SteerEngine: _ignore,  # the emulated core takes its limits from its profile
            ControlExpired: _ignore,  # a line of the live shell's log
        }

    def start(self) -> None:
        for name, engine in self.engines.items():
            limits = engine.core.profile.limits
            capacity = limits.num_gpu_blocks * limits.block_size
            info = EngineInfo(
                engine=name,
                up=True,
                kind="emulated",
                hardware=engine.core.profile.name,
                max_model_len=limits.max_model_len,
                kv_capacity_tokens=capacity,
                block_size=limits.block_size,
                max_num_seqs=limits.max_num_seqs,
            )
            self.step(EngineWentUp(info))
        cadences = self._mesh.setup.cadences
        self.step(HeartbeatDue())
        self._mesh.every(cadences.progress_s, self._progress)
        self._mesh.every(cadences.worker_cycle_s, self._cycle)
        self._mesh.every(cadences.heartbeat_s, self._heartbeat)
        self._mesh.every(cadences.scrape_s, self._scrape)

    def step(self, event: Any) -> None:
        self._mesh.step(self.name, self.agent, event, self._handlers)

    # --- timers

    def _cycle(self) -> None:
        self.step(CycleTicked())

    def _progress(self) -> None:
        placed, progress = self._placed, []
        for engine in self.engines.values():
            engine.catch_up()
            progress += [item for item in engine.core.progress() if item[0] in placed]
        if progress:
            self.step(ProgressSampled(tuple(progress)))

    def _heartbeat(self) -> None:
        self.step(HeartbeatDue())

    def _scrape(self) -> None:
        """Samples every engine as the live shell does over HTTP: gauges of the moment, tokens per second since the last
        sample, and the mean step time over `step_window_s`."""
        for name, engine in self.engines.items():
            engine.catch_up()
            now, before = engine.core.stats(), self._last_stats.get(name)
            self._last_stats[name] = now
            marks = self._step_marks[name]
            steps, busy_s = marks[0]
            marks.append((engine.steps, engine.busy_s))
            new_steps = engine.steps - steps
            step_s = (engine.busy_s - busy_s) / new_steps if new_steps else 0.0
            period_s = self._mesh.setup.cadences.scrape_s
            prompt = now.prompt_tokens - (before.prompt_tokens if before else 0)
            decode = now.generation_tokens - (before.generation_tokens if before else 0)
            self.step(
                EngineSampled(
                    engine=name,
                    running=now.num_requests_running,
                    waiting=now.num_requests_waiting,
                    kv_usage=now.kv_cache_usage,
                    preemptions_total=now.num_preemptions,
                    step_s=step_s,
                    prefill_tokens_per_s=prompt / period_s,
                    decode_tokens_per_s=decode / period_s,
                )
            )

    # --- the engine's side

    def _dispatch(self, effect: Dispatch) -> None:
        self._placed[effect.request_id] = effect.engine
        self._heap.after(self._delays.engine_s, self._add, effect)

    def _add(self, effect: Dispatch) -> None:
        if self._placed.get(effect.request_id) != effect.engine:
            return  # the request was aborted on its way to the engine
        pace = None if effect.tpot_s is None else TokenDeadline(effect.tpot_s)
        request = self._mesh.journeys[effect.request_id].offered.engine_request(effect.urgency, pace)
        answer = self.engines[effect.engine].add(request)
        if answer is not AddResult.ACCEPTED:
            del self._placed[effect.request_id]
            busy = answer is AddResult.QUEUE_FULL
            outcome = Outcome.ENGINE_ERROR if busy else Outcome.ENGINE_REFUSED
            self._later(
                EngineFailed(
                    request_id=effect.request_id,
                    outcome=outcome,
                    message=answer.value,
                    output_tokens=0,
                    retryable=busy,
                    busy=busy,
                )
            )

    def _abort(self, effect: Abort) -> None:
        if self._placed.pop(effect.request_id, None) is not None:
            self._heap.after(self._delays.engine_s, self.engines[effect.engine].abort, effect.request_id)

    def _stepped(self, engine: SimEngine, result: StepResult) -> None:
        heap, mesh, delays = self._heap, self._mesh, self._delays
        now_s = heap.now_s
        for request_id in result.first:
            journey = mesh.journeys[request_id]
            if request_id in self._placed and journey.engine_first_s is None:
                journey.engine_first_s = now_s
                heap.after(delays.engine_s, self._first_token, request_id)
        for request_id in result.finished:
            if self._placed.pop(request_id, None) is not None:
                journey = mesh.journeys[request_id]
                journey.engine_last_s = now_s
                journey.output_tokens = journey.offered.output_tokens
                heap.after(delays.engine_s, self.step, EngineFinished(request_id, journey.output_tokens, None))

    def _first_token(self, request_id: str) -> None:
        self.step(FirstTokenReceived(request_id))
        self._heap.after(self._delays.relay_s, self._mesh.gateway.first_token, request_id)

    def _later(self, event: Any) -> None:
        self._heap.after(self._delays.engine_s, self.step, event)

    # --- the gateway's side

    def _conclude(self, effect: Conclude) -> None:
        self._heap.after(self._delays.relay_s, self._mesh.gateway.concluded, effect)

    def _reject(self, effect: Reject) -> None:
        self._heap.after(self._delays.relay_s, self._mesh.gateway.rejected, effect)

    def _hand_back(self, effect: Handback) -> None:
        self._heap.after(self._delays.relay_s, self._mesh.gateway.handed_back, effect)

    def submit(self, event: GatewayMessage) -> None:
        """Takes a message from the gateway; it reaches the agent after the delay of the stream."""
        self._heap.after(self._delays.relay_s, self.step, event)

    def _switched(self, effect: TopologySwitched) -> None:
        self.spans.append(TopologySpan(self._heap.now_s, effect.after.value, effect.reason))


def _ignore(_: object) -> None:
    pass
