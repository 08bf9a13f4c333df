"""What a worker is told at its start. Read once by the shell, frozen here."""

from dataclasses import dataclass, field
from typing import Protocol

CYCLE_S = 0.1  # between two `CycleTicked`


class RandomSource(Protocol):
    """A seeded source of randomness (`random.Random` is one); the Lottery topology draws from it."""

    def randrange(self, stop: int, /) -> int:
        """A uniform integer in [0, stop)."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerPriorConfig:
    """Cold-start guesses for unannotated requests, in force until enough requests settled.

    `output_tokens` median and `output_tokens_p90`, prefill rate in prompt tokens per second, seconds per decode token.
    """

    output_tokens: float = 200.0
    output_tokens_p90: float = 600.0
    prefill_tokens_per_s: float = 8000.0
    tpot_s: float = 0.03


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Identity, bounds and static limits of one worker.

    `static_n_run`: sequences in flight per engine where no control tuple is in force; None: the engine's own
    `max_num_seqs`. `delta_frag`: share of the KV cache kept free (Eq. 2). `prefill_window_s`: prefill that an
    engine may have before it, at the pace measured there; what is beyond waits here, where the topology decides.
    `no_engine_patience_s`: how long queued requests outlast the last engine, or one without room.
    `cold_speed_share`: until measured, the share of an engine's sequences' single-stream speed that a full engine is
    taken to deliver.
    """

    worker: str
    incarnation: str
    address: str
    pool: str
    aliases: tuple[str, ...] = ()
    max_queued: int = 100_000
    max_queued_tokens: int = 200_000_000
    static_n_run: int | None = None
    delta_frag: float = 0.05
    prefill_window_s: float = 0.1
    no_engine_patience_s: float = 10.0
    max_dispatches_per_pump: int = 32  # about a millisecond, in which no token is relayed
    telemetry_period_s: float = 0.1
    telemetry_events: int = 256
    running_report_period_s: float = 1.0
    cold_speed_share: float = 0.5
    prior: WorkerPriorConfig = field(default_factory=WorkerPriorConfig)
