"""How full and how fast the engines are, as a topology may know it: the only view of time and service it gets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOccupancy:
    """One engine that is up. `kv_tokens` is what the admission fence lets it hold, `kv_free_tokens` what is left of it
    (0 and 0: no fence). `prefill_pace`: how many seconds of predicted prefill it gets through in one.
    """

    cap: int  # sequences in flight stay at or below it
    running: int  # sequences that this worker has in flight there
    kv_tokens: int
    kv_free_tokens: int
    prefill_pace: float = 1.0


@dataclass(frozen=True, slots=True)
class ServiceView:
    """All engines that are up, at `now_s`. `prefill_floor_s`: of any predicted prefill, what a step costs by itself."""

    now_s: float
    engines: tuple[EngineOccupancy, ...]
    prefill_floor_s: float = 0.0
