"""What a worker is told at its start. Read once by the shell, frozen here."""

from dataclasses import dataclass, field
from typing import Protocol

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S


class RandomSource(Protocol):
    """A seeded source of randomness (`random.Random` is one); the Lottery topology draws from it."""

    def randrange(self, stop: int, /) -> int:
        """A uniform integer in [0, stop)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPriorConfig:
    """What is assumed of unannotated requests. The first four are guesses, in force until enough requests settled."""

    output_tokens: float = 200.0  # median
    output_tokens_p90: float = 600.0
    prefill_tokens_per_s: float = 8000.0  # prompt tokens
    tpot_s: float = 0.03
    min_count: int = 8  # settled requests before a cell's estimate is trusted
    memory: int = 64  # effective number of settled requests that a cell, the prefill rate and the TPOT remember
    max_cells: int = 4096  # pairs of tenant and prompt bucket; the oldest goes first


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBiasConfig:
    """What predicted lengths are off by."""

    doubt: float = 8.0  # settled requests after which a bias is half believed
    memory: int = 64  # effective number of settled requests that a cell remembers
    max_cells: int = 4096  # predictors, task types and tenants; the oldest goes first


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationsConfig:
    """How long the answers of each application usually are."""

    min_count: int = 8  # finished requests before a history is trusted
    memory: int = 256  # effective number of finished requests remembered
    max_applications: int = 4096  # the one first heard of goes first


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterConfig:
    """How fast the worker serves, and when a refused client should come back."""

    window_s: float = 10.0  # time constant of the measured speed
    min_retry_s: float = 1.0
    max_retry_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBacklogConfig:
    """How the pace of an engine's prefill is measured."""

    measure_s: float = 0.25  # of time with prompts before it, between two measurements
    smoothing: float = 0.5  # a new measurement's share
    most_pace: float = 1000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStateConfig:
    """How one engine is seen."""

    default_block: int = 16  # tokens a KV block holds, where the engine does not say
    default_sequences: int = 256  # bound on running sequences of an engine that does not say
    presumed: float = 3.0  # predicted prefill times after which an unseen first token has come
    spared: float = 0.1  # of what runs: its TPOT SLOs may be tighter than the one utilisation is measured by
    peak_fresh_s: float = 0.1  # while all grow as they were forecast to
    plenty: int = 2  # times what could be needed at most: no need to forecast
    sample_fresh_s: float = 2.0  # an older sample says nothing about utilisation any more
    prefill: PrefillBacklogConfig = field(default_factory=PrefillBacklogConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalConfig:
    """Refusals instead of late answers."""

    most_per_cycle: int = 100  # looked at, longest queued first
    tags_within_s: float = 0.5  # before them, what is known of a request is a guess, and no reason to refuse it


@dataclass(frozen=True, slots=True, kw_only=True)
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
    telemetry_period_s: float = TELEMETRY_S
    telemetry_events: int = TELEMETRY_EVENTS
    running_report_period_s: float = 1.0
    cold_speed_share: float = 0.5
    growth: float = 1.25  # of what a request that outgrew its bound has produced, where nothing better is known
    floor_rise: float = 0.005  # what a step costs by itself rises by this share of the way to each prediction above it
    most_lag_s: float = 0.5  # more is a process that was stopped for a while, and is over
    busy_pause_s: float = 0.1  # an engine without room is left alone
    ended_remembered: int = 8192  # ended attempts, so that a repeated Submit is not served twice
    prior: WorkerPriorConfig = field(default_factory=WorkerPriorConfig)
    length_bias: LengthBiasConfig = field(default_factory=LengthBiasConfig)
    applications: ApplicationsConfig = field(default_factory=ApplicationsConfig)
    meter: MeterConfig = field(default_factory=MeterConfig)
    engine: EngineStateConfig = field(default_factory=EngineStateConfig)
    refusal: RefusalConfig = field(default_factory=RefusalConfig)
