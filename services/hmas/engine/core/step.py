"""What the core says about its steps and about itself."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StepPlan:
    """A step that has begun. `admitted` includes sequences that resume; `preempted` are waiting again.

    `prefill_pairs` is the attention work of the prefill chunks, `context_tokens` that of decoding (see `CostModel`).
    """

    duration_s: float = 0.0
    decode_seqs: int = 0
    context_tokens: int = 0
    prefill_tokens: int = 0
    prefill_pairs: float = 0.0
    admitted: list[str] = field(default_factory=list)
    preempted: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StepResult:
    """A step that has ended: each request in `tokens` got exactly one token.

    `first` are those of them whose prefill this step completed (their first token, unless they resumed after a
    preemption), `finished` those for which it was the last.
    """

    tokens: list[str]
    first: list[str]
    finished: list[str]


@dataclass(frozen=True, slots=True)
class FastForward:
    """`steps` whole steps in which every running request got one token each; the last ended at `end_s`."""

    steps: int
    end_s: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot under vLLM's names; totals since the start, prefix cache counted in tokens as vLLM does."""

    num_requests_running: int
    num_requests_waiting: int
    kv_cache_usage: float
    num_preemptions: int
    prompt_tokens: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int
