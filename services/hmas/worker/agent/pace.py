"""How fast and how full the engines are, as a topology may know it: the only view of time and service it gets."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EnginePace:
    """One engine that is up. Sequences and tokens are those of requests this worker has in flight there.

    `kv_tokens` is what the admission fence lets it hold, `kv_free_tokens` what is left of it (0 and 0: no fence).
    `step_s`, `prefill_tokens_per_s` and `decode_tokens_per_s` were measured lately; 0 where nothing was.
    `tightest_tpot_s`: of what runs, those it could meet at all; inf if none. `prefill_pace`: how many seconds of
    predicted prefill it gets through in one.
    """

    engine: str
    cap: int  # sequences in flight stay at or below it
    running: int  # in flight
    decoding: int  # of them, with a first token
    prefill_tokens: int  # prompts of the others
    context_tokens: int  # prompts and outputs so far of all of them
    kv_tokens: int
    kv_free_tokens: int
    step_s: float
    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    tightest_tpot_s: float
    prefill_pace: float = 1.0


@dataclass(frozen=True, slots=True)
class ServiceView:
    """All engines that are up, at `now_s`. `speed`: predicted single-stream seconds (T_tot) served per second while
    requests wait, by the worker's meter; 0 if no engine is up. `prefill_floor_s`: of any predicted prefill, what a step
    costs by itself."""

    now_s: float
    speed: float
    engines: tuple[EnginePace, ...]
    prefill_floor_s: float = 0.0
