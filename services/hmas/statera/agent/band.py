"""What moves N_run of one engine: a limit that it shows, or the outer loop on the mean utilisation error (H-MAS
Algorithm 2, lines 9-13)."""

import sys
from dataclasses import dataclass

from hmas.contracts.control import EngineControl, StepTime
from hmas.contracts.telemetry import EngineSample
from hmas.statera.agent.config import NRunConfig, NRunRule


@dataclass(frozen=True, slots=True)
class Band:
    low: float
    high: float

    def error(self, utilisation: float) -> float:
        """Returns the signed distance of a utilisation from the band; 0 inside (H-MAS Algorithm 2, lines 9 and 10)."""
        return utilisation - min(self.high, max(self.low, utilisation))


class NRunController:
    """Moves N_run of one engine, by the rule of its configuration.

    By `BAND`, a move changes N_run by `gain` times the utilisation error over the utilisation. Utilisation grows at
    most in proportion to concurrency, so with gain < 1 a move at steady load never crosses the far edge of the band. To
    avoid wind-up, N_run is cut from the number that really runs and only when the last cut has taken effect, and raised
    only where N_run is what limits the engine.

    Requests that wait inside the engine are another reason to cut N_run, whatever the utilisation: the engine has
    reached a limit of its own, and the topology cannot order what waits there. Not so while it computes prompts about
    as fast as it ever did: then they wait for the prefill of those before them, which fewer sequences would not hasten.
    Nor while memory is what is short: that is the fence's to give away, and it learns from preemptions.
    """

    def __init__(self, config: NRunConfig, n_max: int) -> None:
        self._config = config
        self._n_max = max(min(n_max, config.n_most), config.n_min)
        self._n = float(self._n_max)
        self._moved_s: float | None = None
        self._limit: tuple[float, int] | None = None  # (when, N_run) at which the engine showed a limit of its own
        self._most_prefill = 0.0  # tokens/s, of the windows so far
        self._reset_window()

    def _reset_window(self) -> None:
        self._samples = 0
        self._errors = 0.0
        self._utilisation = 0.0
        self._prefill = 0.0
        self._peak_running = 0
        self._least_running = self._least_waiting = sys.maxsize
        self._saturated_low = self._saturated_high = True

    @property
    def n_run(self) -> int:
        return int(self._n)

    def adopt(self, n_run: int) -> None:
        """Goes on from the set-point of another writer, within this engine's bounds."""
        self._n = self._projected(float(n_run))

    def observe(self, sample: EngineSample, band: Band) -> None:
        """Adds a sample of the engine. The inner loop counts as saturated if the worker reports it, or if B_token is at
        a bound."""
        self._samples += 1
        error = band.error(sample.utilisation)
        self._errors += error
        self._utilisation += sample.utilisation
        self._prefill += sample.prefill_tokens_per_s
        self._peak_running = max(self._peak_running, sample.running)
        self._least_running = min(self._least_running, sample.running)
        short = sample.kv_capacity_tokens > 0 and sample.kv_usage >= band.low  # of memory, which the fence gives away
        self._least_waiting = 0 if short else min(self._least_waiting, sample.waiting)
        low, high = self.budget_bounds(sample.running)
        self._saturated_low &= sample.b_saturated < 0 or sample.b_token <= low
        self._saturated_high &= sample.b_saturated > 0 or sample.b_token >= high

    def move(self, now_s: float, in_flight: int, queued: int) -> bool:
        """Moves N_run if a move is due, and tells whether it changed. `in_flight` counts the requests that run or wait
        in the engine, `queued` those that wait in the worker."""
        if self._moved_s is None:
            self._moved_s = now_s
        if now_s - self._moved_s < self._config.period_s or self._samples < self._config.min_samples:
            return False
        self._moved_s = now_s
        before = self.n_run
        self._notice_limit(now_s)
        self._n = self._projected(self._next(now_s, in_flight, queued))
        self._reset_window()
        return self.n_run != before

    def hold(self) -> None:
        """Keeps N_run as it is and forgets the samples since the last move."""
        self._reset_window()

    def _notice_limit(self, now_s: float) -> None:
        """Notes a limit of the engine itself: throughout a window, more requests waited in it than refill a batch, and
        the number of running ones did not grow, though the engine was not busy with prompts."""
        prefill = self._prefill / self._samples
        self._most_prefill = max(self._most_prefill, prefill)
        prefilling = prefill > 0.0 and prefill >= self._config.prefilling_share * self._most_prefill
        spare = self._spare(self._peak_running)
        steady = self._peak_running - self._least_running <= spare
        if not prefilling and self._peak_running and self._least_waiting > spare and steady:
            self._limit = (now_s, self._peak_running + spare)
        elif self._limit is not None and now_s - self._limit[0] > self._config.limit_memory_s:
            self._limit = None

    def _spare(self, running: int) -> int:
        return max(1, int(self._config.waiting_share * running))

    def _next(self, now_s: float, in_flight: int, queued: int) -> float:
        if self._limit is not None and self._limit[0] == now_s:
            return min(self._n, float(self._limit[1]))
        if self._config.rule is not NRunRule.BAND:
            return self._raised(in_flight, queued, self._config.slew)
        error = self._errors / self._samples
        step = self._config.gain * abs(error) / max(self._utilisation / self._samples, abs(error), 1e-6)
        step = min(step, self._config.slew)
        free = self._config.unconditional
        if error > 0.0 and (self._saturated_low or free):
            draining = in_flight > self.n_run
            return self._n if draining else min(self._n, float(self._peak_running)) * (1.0 - step)
        if error < 0.0 and (self._saturated_high or free):
            return self._raised(in_flight, queued, step)
        return self._n

    def _raised(self, in_flight: int, queued: int, step: float) -> float:
        """Returns a raised N_run: above a limit that the engine has shown it grows by small probing steps; while no
        request is queued it recovers slowly, and not above that limit."""
        known = self._n_max if self._limit is None else self._limit[1]
        if queued == 0:
            return max(self._n, min(float(known), self._n + self._config.recovery * self._n_max))
        if in_flight < self.n_run - 1:
            return self._n
        step = step if self._n < known else min(step, self._config.probing)
        return self._n + max(1.0, self._n * step)

    def _projected(self, n: float) -> float:
        return min(float(self._n_max), max(float(self._config.n_min), n))

    def budget_bounds(self, running: int) -> tuple[int, int]:
        """Returns the bounds (b_min, b_max) of B_token, in decode tokens per engine step."""
        b_max = self._n_max + self._config.min_prefill_chunk
        return min(b_max, running + self._config.min_prefill_chunk), b_max

    def control(self, sample: EngineSample, band: Band, step: StepTime | None) -> EngineControl:
        """Returns the engine's controls. Their b_token is the value that the worker's inner loop has reached, so that a
        repeated tuple never disturbs that loop. `step`: what its steps cost, None if that is not known."""
        b_min, b_max = self.budget_bounds(sample.running)
        started = sample.b_token if sample.b_token > 0 else b_max
        return EngineControl(
            engine=sample.engine,
            n_run=self.n_run,
            b_token=min(b_max, max(b_min, started)),
            b_min=b_min,
            b_max=b_max,
            gain_b=self._config.inner_gain * b_max if self._config.rule is NRunRule.BAND else 0.0,
            u_low=band.low,
            u_high=band.high,
            step=step if self._config.rule is NRunRule.STEP else None,
        )
