"""The views of a pool that the QoS agent publishes: V_short for fast regulation, V_long for slow adaptation
(H-MAS §3.3)."""

import json
from dataclasses import asdict, dataclass, field, replace

MAX_VIEW_CHARS = 2**17  # of a view as text, in an AuditRecord


@dataclass(frozen=True, slots=True)
class Tail:
    """Quantiles of a latency, seconds; zeros when `count` is 0."""

    count: int = 0
    p50_s: float = 0.0
    p95_s: float = 0.0
    p99_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineView:
    worker: str
    engine: str
    up: bool
    running: int
    waiting: int
    kv_usage: float
    utilisation: float  # window average of the binding resource (DESIGN §5.5)
    step_s: float
    n_run: int
    b_token: int
    b_saturated: int  # -1 at b_min, +1 at b_max, 0 between, over the window
    goodput_tokens_per_s: float
    preemptions_per_s: float
    asleep: bool = field(default=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class VShort:
    """V_short: the last few seconds of a pool. Violation rates are shares of settled requests, in [0, 1]; `*_rps` are
    requests per second."""

    pool: str
    window_s: float
    queued: int
    queued_tokens: int
    running: int
    kv_usage: float
    utilisation: float
    ttft: Tail
    tpot: Tail
    violation_rate: float  # nu: not OK / settled (refused and failed included)
    ttft_violation_rate: float
    tpot_violation_rate: float
    arrival_rps: float
    settled_rps: float
    kept_rps: float  # settled requests that count and were never relegated: those the topology meant to serve in time
    kept_violation_rate: float  # share of these that missed an SLO
    arriving_tokens_per_s: float  # lambda_tok
    served_tokens_per_s: float  # mu_tok
    mismatch: float  # M_rho, Eq. 7
    oldest_wait_s: float
    engines: tuple[EngineView, ...]
    epoch: int
    seq: int
    valid_for_s: float
    queued_asleep: int = field(default=0, repr=False)  # those queued that only sleeping engines could take


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareView:
    """Counts of one tenant or one task type over the window of V_long."""

    name: str
    offered: int
    settled: int
    ok: int
    ttft_ok: int
    tpot_ok: int
    tokens_served: int  # service tokens: prompt + 2 * output tokens, the weights of ESG
    weight: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandView:
    """The requests of like needed time per token and predicted lengths that came within the window of V_long.
    `tpot_slo_s` is the upper end of its range: the TPOT SLO, or what a TTLT leaves a token of the predicted length.
    `rps` is the rate at which they come. The rest are sums. `context_tokens` is that of p·o + o²/2 over prompt and
    output lengths p and o: the tokens of context that decoding reads."""

    tpot_slo_s: float
    rps: float
    requests: int
    prompt_tokens: int
    output_tokens: int
    context_tokens: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceView:
    """The pace law of one engine, as measured: a step takes `base_s`, and `sequence_s` for each sequence that decodes,
    `context_s` for each token of context that these hold, and `prompt_s` for each prompt token computed, all in s.
    `observations` it was fitted to; 0: nothing is known yet."""

    worker: str
    engine: str
    base_s: float
    sequence_s: float
    context_s: float
    prompt_s: float
    observations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VLong:
    """V_long: the last minutes of a pool, with statistics of the workload and smoothed quality of service (H-MAS §3.3,
    App. C.1)."""

    pool: str
    window_s: float
    arrival_rps: float
    arrival_cv: float  # coefficient of variation of inter-arrival times
    burstiness: float  # most arrivals in one second over the mean per second
    prompt_mean: float
    prompt_cv: float
    output_mean: float
    output_cv: float
    predicted_total_cv: float  # CV of predicted work (prompt + 2 * output tokens): how badly long blocks short
    prompt_histogram: tuple[int, ...]  # counts per power-of-two bucket, from 64 tokens
    output_histogram: tuple[int, ...]
    tasks: tuple[ShareView, ...]
    tenants: tuple[ShareView, ...]
    jain_index: float  # of service tokens / weight over tenants with demand
    goodput: float
    goodput_rate: float
    esg_rate: float
    violation_rate: float  # smoothed
    ttft_violation_rate: float
    tpot_violation_rate: float
    ttft: Tail
    tpot: Tail
    queued: int
    mismatch_mean: float
    mismatch_p95: float
    utilisation: float
    trend_arrival: float  # slope over mean, per minute; so are the two below
    trend_violation: float
    trend_prompt: float
    epoch: int
    seq: int
    demands: tuple[DemandView, ...] = ()
    paces: tuple[PaceView, ...] = ()
    stated_share: float = 0.0  # of the offered requests, those whose SLO the client stated


def view_json(view: VShort | VLong | None) -> str:
    """Returns a view as JSON, `{}` for none, without its demands, which are too many for a record. Where that would
    exceed MAX_VIEW_CHARS, because names are long and many, lists are left out, the longest first, and `left_out` names
    them."""
    if view is None:
        return "{}"
    body = asdict(replace(view, demands=()) if isinstance(view, VLong) else view)
    body.pop("demands", None)
    text = json.dumps(body)
    while len(text) > MAX_VIEW_CHARS:
        lists = {name: len(json.dumps(value)) for name, value in body.items() if isinstance(value, tuple)}
        longest = max(lists, key=lists.__getitem__)
        del body[longest]
        body["left_out"] = [*body.get("left_out", []), longest]
        text = json.dumps(body)
    return text
