"""What Statera knows of one worker: an outer loop and the cost of a step per engine, and the control tuple that it last
sent."""

from hmas.contracts.control import ControlTuple, EngineControl, Fence
from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.telemetry import WorkerTelemetry
from hmas.statera.agent.band import Band, NRunController
from hmas.statera.agent.config import NRunConfig
from hmas.statera.agent.step_meter import StepMeter


class WorkerControl:
    def __init__(self, config: NRunConfig, heartbeat: WorkerHeartbeat, now_s: float) -> None:
        self._config = config
        self._loops: dict[str, tuple[int, NRunController]] = {}  # engine: (N_max, loop)
        self._steps: dict[str, StepMeter] = {}  # by engine
        self._telemetry: WorkerTelemetry | None = None
        self._adopted: dict[str, int] = {}  # N_run of the last tuple, for engines not seen yet
        self.worker = heartbeat.worker
        self.pool = heartbeat.pool
        self.seen_s = now_s
        self.sent_s: float | None = None
        self.sent: tuple[tuple[EngineControl, ...], Fence, bool] | None = None
        self.audited: dict[str, int] = {}

    def heard(self, now_s: float, heartbeat: WorkerHeartbeat) -> None:
        """Takes a heartbeat: loops are made for new engines and dropped for lost ones; an engine whose `max_num_seqs`
        changed gets a new loop."""
        self.seen_s = now_s
        self.pool = heartbeat.pool
        loops: dict[str, tuple[int, NRunController]] = {}
        for info in heartbeat.engines:
            n_max, loop = self._loops.get(info.engine, (0, None))
            if loop is None or n_max != info.max_num_seqs:
                loop = NRunController(self._config, info.max_num_seqs)
                if info.engine in self._adopted:
                    loop.adopt(self._adopted.pop(info.engine))
            loops[info.engine] = (info.max_num_seqs, loop)
        self._loops = loops
        self._steps = {engine: self._steps.get(engine) or StepMeter(self._config.steps, engine) for engine in loops}

    def adopt(self, control: ControlTuple) -> None:
        """Goes on from the set-points of the previous writer."""
        for engine in control.engines:
            if engine.engine in self._loops:
                self._loops[engine.engine][1].adopt(engine.n_run)
            else:
                self._adopted[engine.engine] = engine.n_run

    def observe(self, now_s: float, telemetry: WorkerTelemetry, band: Band, *, follow: bool, frozen: bool) -> None:
        """Takes a worker's telemetry. If `follow`, another copy of Statera publishes, and its N_run is adopted. If
        `frozen`, the loops keep N_run and ignore the samples."""
        self._telemetry = telemetry
        for sample in telemetry.engines:
            _, loop = self._loops.get(sample.engine, (0, None))
            if loop is None:
                continue
            self._steps[sample.engine].observe(now_s, sample)
            if follow and sample.n_run > 0 and not telemetry.control_expired:
                loop.adopt(sample.n_run)
            if follow or frozen or telemetry.bypass or not sample.up or sample.asleep:
                loop.hold()
            else:
                loop.observe(sample, band)

    def move(self, now_s: float, *, idle: bool = False) -> None:
        """Moves N_run of each engine if a move is due. If the mesh is `idle`, what an engine runs comes from others: it
        tells nothing of how many requests of the mesh the engine can take, so that N_run stays."""
        if self._telemetry is None:
            return
        queued = self._telemetry.queued_count
        for sample in self._telemetry.engines:
            if sample.engine not in self._loops:
                continue
            _, loop = self._loops[sample.engine]
            in_flight = sample.running + sample.waiting
            if idle and in_flight:
                loop.hold()
            else:
                loop.move(now_s, in_flight, queued)

    def controls(self, band: Band) -> tuple[EngineControl, ...]:
        """Returns the controls of each engine that the worker's last telemetry reported, in order of name."""
        samples = {s.engine: s for s in self._telemetry.engines} if self._telemetry is not None else {}
        return tuple(
            loop.control(samples[engine], band, self._steps[engine].cost)
            for engine, (_, loop) in sorted(self._loops.items())
            if engine in samples
        )
