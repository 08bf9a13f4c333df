"""What the regulator did to an engine over the time of a run, for pictures of it."""

from dataclasses import dataclass

from hmas.contracts.control import ControlTuple
from hmas.contracts.telemetry import WorkerTelemetry

EVERY_S = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Regulated:
    """One engine at the instant `at_s`: the mean utilisation, KV usage and step since the row before, the limits in
    force, what runs and waits there and in its worker, and the band of the last control tuple (0 before there is
    one)."""

    at_s: float
    engine: str
    utilisation: float
    kv_usage: float
    step_s: float
    n_run: int
    b_token: int
    running: int
    queued: int
    band_low: float
    band_high: float


class RegulationTrace:
    """Keeps one row per engine and `EVERY_S` seconds."""

    def __init__(self) -> None:
        self.rows: list[Regulated] = []
        self._bands: dict[str, tuple[float, float]] = {}
        self._sums: dict[str, list[float]] = {}
        self._due_s: dict[str, float] = {}

    def controlled(self, control: ControlTuple) -> None:
        for engine in control.engines:
            self._bands[engine.engine] = engine.u_low, engine.u_high

    def reported(self, now_s: float, telemetry: WorkerTelemetry) -> None:
        for sample in telemetry.engines:
            name = sample.engine
            sums = self._sums.setdefault(name, [0.0] * 4)
            for i, value in enumerate((1.0, sample.utilisation, sample.kv_usage, sample.step_s)):
                sums[i] += value
            if now_s < self._due_s.get(name, 0.0):
                continue
            low, high = self._bands.get(name, (0.0, 0.0))
            self.rows.append(
                Regulated(
                    at_s=round(now_s, 2),
                    engine=name,
                    utilisation=round(sums[1] / sums[0], 4),
                    kv_usage=round(sums[2] / sums[0], 4),
                    step_s=round(sums[3] / sums[0], 5),
                    n_run=sample.n_run,
                    b_token=sample.b_token,
                    running=sample.running,
                    queued=telemetry.queued_count,
                    band_low=round(low, 4),
                    band_high=round(high, 4),
                )
            )
            self._sums[name], self._due_s[name] = [0.0] * 4, now_s + EVERY_S
