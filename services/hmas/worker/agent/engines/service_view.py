"""How full and how fast the engines are: all that a topology is told of time and of the engines."""

from dataclasses import dataclass
from math import inf

from hmas.contracts.control import StepTime


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOccupancy:
    """The load of one engine that is up.

    `kv_tokens` is the KV memory, in tokens, that the admission gate may fill, and `kv_free_tokens` what is left of it;
    both are 0 if the engine's capacity is unknown. `prefill_pace`: predicted seconds of prefill that it computes per
    real second. `prefill_wait_s`: by how much first tokens have lately come later than the prompts' own prefill.
    `step`: what a step costs, None if that limits nothing; `room_s` of it are there for sequences, which take `used_s`.
    """

    cap: int  # most sequences in flight
    running: int  # sequences that this worker has in flight there
    kv_tokens: int
    kv_free_tokens: int
    prefill_pace: float = 1.0
    prefill_wait_s: float = 0.0
    step: StepTime | None = None
    room_s: float = inf
    used_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ServiceView:
    """The load of all engines that are up, at the instant `now_s`.

    `prefill_floor_s`: the seconds of any predicted prefill that an engine's step costs anyway.
    """

    now_s: float
    engines: tuple[EngineOccupancy, ...]
    prefill_floor_s: float = 0.0
