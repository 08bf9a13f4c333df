"""Configuration of the worker agent. The shell reads it once from the settings; it never changes afterwards."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import TELEMETRY_EVENTS, TELEMETRY_S


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPriorConfig:
    """What the worker assumes of requests without tags, and how it learns this from settled ones.

    The first four fields are guesses that serve until enough requests have settled.
    """

    output_tokens: float = 200.0  # median
    output_tokens_p90: float = 600.0  # 90 % quantile
    prefill_tokens_per_s: float = 8000.0  # prompt tokens
    tpot_s: float = 0.03
    min_count: int = 8  # settled requests before a cell's estimate is trusted
    memory: int = 64  # effective number of settled requests that a cell, the prefill rate and the TPOT remember
    max_cells: int = 4096  # pairs of tenant and prompt bucket; beyond, the oldest is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class LengthBiasConfig:
    """How the worker learns by which factor predicted answer lengths are too short or too long."""

    doubt: float = 4.0  # requests after which half of the bias seen is applied at least
    certain: float = 3.0  # standard errors from what is known without it at which a bias begins to be applied faster
    newest: int = 8  # requests that, if they contradict the older ones, make these forgotten
    contradicts: float = 3.0  # standard errors beyond one standard deviation by which they must differ for that
    memory: int = 32  # requests that a cell remembers
    most_running: int = 24  # of these
    max_cells: int = 4096  # combinations of predictor, task type and tenant; beyond, the oldest is forgotten
    sd: float = 0.8  # standard deviation of log(actual / predicted length) that is assumed while few were seen
    most_sd: float = 2.0  # the largest that is believed, because few errors, most of them bounds, tell little of it


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationsConfig:
    """How the worker learns the usual answer length of each application."""

    min_count: int = 8  # finished requests before a history is trusted
    memory: int = 256  # effective number of finished requests remembered
    max_applications: int = 4096  # beyond, a tenant with many forgets one for each new one


@dataclass(frozen=True, slots=True, kw_only=True)
class MeterConfig:
    """How the worker's speed is measured, and the bounds of the wait that a refused client is told."""

    window_s: float = 10.0  # time constant of the measured speed
    min_retry_s: float = 1.0  # the shortest wait told
    max_retry_s: float = 600.0  # the longest wait told


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillBacklogConfig:
    """How the pace of an engine's prefill is measured: the predicted seconds of prefill that it computes per second.
    Predicted seconds of waiting prompts, divided by the pace, become real ones."""

    measure_s: float = 0.25  # seconds during which prompts were pending that make one measurement
    smoothing: float = 0.5  # weight of a new measurement against the old pace
    most_pace: float = 1000.0  # upper limit of a measurement
    wait_smoothing: float = 0.05  # weight of the newest first token in how late they come
    most_wait_s: float = 2.0  # later than that is an engine that stood still, which tells nothing of the next


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillWindowConfig:
    """How much prefill may be pending on an engine, so that what runs there keeps its TPOT (`prefill_window.py`)."""

    least_s: float = 0.05
    most_s: float = 0.3
    paced_s: float = 0.15  # of an engine that keeps the paces itself
    given_up: float = 0.4  # share of the running requests, those with the tightest budgets, that it need not keep
    kept_s: float = 0.05  # how long a window is used before it is worked out anew
    memory_s: float = 60.0  # time constant with which the least step seen is forgotten


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheConfig:
    """What the worker remembers of an engine's prefix cache.

    Where less is found than was expected, and the cache was not reset, the share of the memory that prompts have sinks
    by `room_gain`, to `min_room` at least. Where more is found, it rises by that, to `max_room`.
    """

    max_nodes: int = 65_536  # most nodes remembered of one engine
    capacity_tokens: int = 500_000  # its memory, if it does not report it
    smoothing: float = 0.1  # weight of a new report in `trust` and in what else is learnt
    repeated: float = 0.5  # share of answers from which on the next prompt is taken to find the whole answer
    tolerance: float = 0.05  # share of what is expected that may be missing
    # Share of what is held that may have been used since, for a beginning that is gone to mean that the cache was
    # reset.
    lately: float = 0.5
    room_gain: float = 0.02
    min_room: float = 0.2
    max_room: float = 1.1
    proof: float = 0.1  # from this share of what is held on, what is missing proves that all that is older is gone
    # Where the engine's events are counted, so many blocks more may be held than there are, as prompts share blocks
    # and end within them.
    spare_blocks: int = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStateConfig:
    """How the worker models one engine."""

    default_block: int = 16  # tokens in a KV block, if the engine does not report it
    default_sequences: int = 256  # most running sequences, if the engine does not report it
    presumed: float = 3.0  # predicted times to first token after which one that cannot be seen is presumed to have come
    base_memory_s: float = 600.0  # time constant with which measurements of steps are forgotten
    peak_fresh_s: float = 0.1  # how long a forecast of peak memory that leaves no room is used
    peak_kept_s: float = 0.5  # how long one that leaves room is used, and that by which topologies plan
    plenty: int = 2  # no forecast is made while the budget is at least this multiple of the reserved blocks
    sample_fresh_s: float = 2.0  # an older sample says nothing about utilisation any more
    counters_fresh_s: float = 10.0  # an older sample does not say that the engine's counters stand still
    short_step: float = 0.7  # share of the TPOT SLO worth keeping, below which an engine's steps count as short
    short_room: float = 2.0  # factor by which more is granted than a step has room for while steps are short
    small: float = 0.7  # a request is small if it takes at most this share of the mean of those that run
    small_room: float = 1.5  # a small request may begin while the others take up to this multiple of a step's time
    large_room: float = 0.75  # any request may begin while the others take less than this share of a step's time
    small_seen: float = 0.2  # share of small requests among those granted lately, above which `large_room` holds
    small_smoothing: float = 0.02  # weight of one more granted request in that share
    suspect_pause_s: float = (
        5.0  # how long an engine that left a run without a token gets nothing, doubled each time in a row
    )
    max_suspect_pause_s: float = 30.0  # the longest such pause
    prefill: PrefillBacklogConfig = field(default_factory=PrefillBacklogConfig)
    window: PrefillWindowConfig = field(default_factory=PrefillWindowConfig)
    prefix: PrefixCacheConfig = field(default_factory=PrefixCacheConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayLinkConfig:
    """How the worker deals with gateways that are slow, gone, or cannot reach an engine; durations in seconds."""

    start_due_s: float = 1.0  # a grant that is unanswered for longer is stopped
    lag_s: float = 0.5  # while the oldest unanswered grant is older, the gateway gets no further ones
    block_s: float = 1.0  # how long a gateway that could not connect to an engine gets no grants there,
    max_block_s: float = 30.0  # doubled each time in a row up to this
    settled_s: float = 1.0  # age of a grant from which on its engine's own count must show it
    uncounted_s: float = 2.0  # how long an engine without such a count is given to drop what nobody told of
    smoothing: float = 0.3  # weight of a new measurement of a gateway's demand


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalConfig:
    """How the worker refuses requests that would be late, for tenants that prefer a refusal."""

    most_per_cycle: int = 100  # requests examined, those first that were not for longest
    tags_within_s: float = 0.5  # until tags come, an estimate is a guess: a request without tags is spared this long


@dataclass(frozen=True, slots=True, kw_only=True)
class TagWaitConfig:
    """When a request waits a moment for its tags (`tag_wait.py`)."""

    patience_s: float = 0.12  # how long at most, from its arrival on
    smoothing: float = 0.1  # weight of one more request in the share whose tags came in time
    least_in_time: float = 0.5  # that share, below which none waits
    window_s: float = 60.0  # time constant of the share of the time in which requests wait for an engine
    busy: float = 0.05  # that share, from which on a request waits for its tags while others wait
    pressed: float = 0.4  # that share, from which on it does so alone as well


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitConfig:
    """When one engine computes a prompt and another one answers. `rule`: auto, by what is expected to be late; always,
    on the engines of each role; beyond, the same for prompts of which more than `beyond_tokens` are in no cache; never.

    - `error` is the share of a predicted time by which it may be off. Pairs by which as many requests are late, in
      steps of `grain`, are about equal. A prompt that makes more than `harmless` late waits, as long as its first token
      has `spare_s` left.
    - A request costs `hop_s` more if it is split. Until it is learnt, with the weight `smoothing` of each observation,
      reading the KV of a token is taken to cost `token_s`.
    """

    rule: str = "never"
    beyond_tokens: int = 0
    error: float = 0.3
    grain: float = 0.05
    harmless: float = 0.3
    spare_s: float = 0.5
    hop_s: float = 0.005
    token_s: float = 2e-5
    smoothing: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """Identity, bounds and static limits of one worker."""

    worker: str
    incarnation: str
    address: str
    pool: str
    aliases: tuple[str, ...] = ()
    max_queued: int = 100_000
    max_queued_tokens: int = 200_000_000
    # Most sequences in flight per engine while no control tuple is in force; None: the engine's own `max_num_seqs`.
    static_n_run: int | None = None
    delta_frag: float = 0.05  # share of the KV cache kept free (Eq. 2)
    fenced: bool = True  # false admits whatever the memory of an engine, for comparisons
    # Most seconds of prefill that may be pending on an engine, at the pace measured there; further prompts wait in
    # the worker, where the topology orders them. None: as many as the TPOT budgets of what runs there allow.
    prefill_window_s: float | None = None
    # How long a request waits for its tags, where its pace class depends on them, or whether it is refused.
    tags_within_s: float = 0.3
    spill_share: float = 0.5  # of a class's TPOT SLO: an engine with shorter steps may help out a laxer class
    # How long queued requests wait for an engine to come up or, after one had no room, for room.
    no_engine_patience_s: float = 10.0
    observes: bool = False  # gateways place all requests themselves, and this agent only keeps the books
    discovers: bool = False  # the engines come and go, so that without one the worker stands by and takes no requests
    leave_grace_s: float = 60.0  # how long an engine that has left may go on with what runs there
    # An engine that comes by a lease is granted nothing for so long, in which gateways hear of it and its own count
    # shows what it runs.
    takeover_s: float = 0.5
    aim_every_s: float = 1.0  # how often it is worked out which TPOT SLO the engines' steps are held to
    offered: int = 512  # of the requests that came last, by whose TPOT SLOs
    max_grants_per_pump: int = 32  # these take about a millisecond
    max_parks_per_pump: int = 512  # the same for requests set aside because their gateway could not be granted any
    telemetry_period_s: float = TELEMETRY_S
    telemetry_events: int = TELEMETRY_EVENTS
    running_report_period_s: float = 1.0
    # The speed assumed of a full engine until one is measured, as a share of its sequences' speeds when each runs
    # alone.
    cold_speed_share: float = 0.5
    growth: float = 1.25  # a request that outgrew its length bound gets at least this multiple of its output as bound
    floor_rise: float = 0.005  # a step's estimated fixed cost rises by this share of the way to a higher prediction
    most_lag_s: float = 0.5  # upper limit of the lag; a longer one means that the process was stopped for a while
    busy_pause_s: float = 0.1  # an engine that had no room gets no dispatch for this long
    prior: WorkerPriorConfig = field(default_factory=WorkerPriorConfig)
    length_bias: LengthBiasConfig = field(default_factory=LengthBiasConfig)
    tag_wait: TagWaitConfig = field(default_factory=TagWaitConfig)
    applications: ApplicationsConfig = field(default_factory=ApplicationsConfig)
    meter: MeterConfig = field(default_factory=MeterConfig)
    engine: EngineStateConfig = field(default_factory=EngineStateConfig)
    gateways: GatewayLinkConfig = field(default_factory=GatewayLinkConfig)
    refusal: RefusalConfig = field(default_factory=RefusalConfig)
    split: SplitConfig = field(default_factory=SplitConfig)
