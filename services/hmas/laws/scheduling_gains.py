"""What a rehearsal says of scheduling a pool that is only observed, and what many of them say together."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from hmas.contracts.rehearsal import Rehearsal
from hmas.contracts.scheduling_gain import SchedulingGain, TenantScheduled

MAX_REASON_CHARS = 300


def gain_of(pool: str, engines: int, topology: str, rehearsal: Rehearsal) -> SchedulingGain:
    """Returns what a rehearsal of observing says, whose first candidate is scheduling. The difference of the two
    simulations counts from what was observed, so that errors that both share cancel."""
    was, candidate = rehearsal.observed.on_time, next(iter(rehearsal.candidates), None)
    gain, low, high = (0.0, 0.0, 0.0) if candidate is None else (candidate.gain, candidate.low, candidate.high)
    shares = {share.tenant: share.on_time for share in rehearsal.observed.tenants}
    return SchedulingGain(
        pool=pool,
        window_s=rehearsal.window_s,
        requests=rehearsal.observed.requests,
        was=was,
        played=rehearsal.in_force.on_time,
        scheduled=clipped(was + gain),
        low=clipped(was + low),
        high=clipped(was + high),
        engines=engines,
        topology=topology,
        abstains=rehearsal.abstains[:MAX_REASON_CHARS],
        tenants=tuple(
            TenantScheduled(
                tenant=each.tenant,
                requests=each.requests,
                was=shares[each.tenant],
                scheduled=clipped(shares[each.tenant] + each.gain),
            )
            for each in (() if candidate is None else candidate.tenants)
        ),
    )


def unknown_gain(pool: str, engines: int, topology: str, reason: str) -> SchedulingGain:
    """Returns what is told where nothing could be simulated."""
    return SchedulingGain(
        pool=pool, window_s=0.0, requests=0, was=0.0, played=0.0, scheduled=0.0, low=0.0, high=0.0, engines=engines,
        topology=topology, abstains=reason[:MAX_REASON_CHARS] or "no reason was told",
    )  # fmt: skip


def told_gain(gain: SchedulingGain) -> str:
    """Returns what scheduling would bring in one line."""
    if gain.abstains:
        was = f"{gain.was:.0%} as it was; " if gain.requests else ""
        return f"on time: {was}as scheduled it cannot be said: {gain.abstains}"
    spread = f"{gain.low:.0%} to {gain.high:.0%}"
    return f"on time: {gain.was:.0%} as it was, {gain.scheduled:.0%} as scheduled ({spread})"


@dataclass(slots=True)
class GainSum:
    """The mean of many gains, each of which counts by its requests. Those that abstain are counted apart, by `reasons`:
    how often each was told. The ends of intervals are averaged as they are, as if all erred together, so that the mean
    has no narrower interval than its parts."""

    told: int = 0
    requests: float = 0.0
    abstained: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    _was: float = 0.0
    _scheduled: float = 0.0
    _low: float = 0.0
    _high: float = 0.0

    def add(self, gain: SchedulingGain) -> None:
        if gain.abstains:
            self.abstained += 1
            kind = _kind(gain.abstains)
            self.reasons[kind] = self.reasons.get(kind, 0) + 1
            return
        self.told += 1
        self.requests += gain.requests
        self._was += gain.requests * gain.was
        self._scheduled += gain.requests * gain.scheduled
        self._low += gain.requests * gain.low
        self._high += gain.requests * gain.high

    @property
    def was(self) -> float | None:
        return self._mean(self._was)

    @property
    def scheduled(self) -> float | None:
        return self._mean(self._scheduled)

    @property
    def low(self) -> float | None:
        return self._mean(self._low)

    @property
    def high(self) -> float | None:
        return self._mean(self._high)

    def _mean(self, total: float) -> float | None:
        return total / self.requests if self.requests else None


def gain_sum(gains: Iterable[SchedulingGain]) -> GainSum:
    total = GainSum()
    for gain in gains:
        total.add(gain)
    return total


def clipped(value: float) -> float:
    """Returns the nearest share, from 0 to 1."""
    return min(1.0, max(0.0, value))


def _kind(reason: str) -> str:
    """Returns a reason without its figures, so that those of one kind are counted together."""
    if "misses by" in reason:
        return "the simulation missed what was observed by more than 5 points"
    if "tell nothing" in reason:
        return "too few requests came"
    return reason
