"""The values that the engine core returns about its steps and its state."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class StepPlan:
    """A step that has begun, and the work in it.

    `admitted` lists the requests that start or resume in it, `preempted` those sent back to the queue. `prefill_pairs`
    is the attention work of the prefill chunks, `context_tokens` that of decoding (see `StepCostModel`).
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
    """A step that has ended: each request in `tokens` (ids) got exactly one token.

    `first` lists those whose prefill this step completed (their first token, unless they resumed after a preemption),
    and `cached` how many tokens of the prompt of each were in the prefix cache; `finished` those that got their last
    token.
    """

    tokens: list[str]
    first: list[str]
    finished: list[str]
    cached: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FastForward:
    """The result of a fast-forward: every running request got a token in each of `steps` steps, until `end_s`."""

    steps: int
    end_s: float


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot of the engine under the names of vLLM's metrics.

    `kv_cache_usage` is a share. Preemptions, tokens and prefix-cache figures (in tokens) are totals since the start.
    """

    num_requests_running: int
    num_requests_waiting: int
    kv_cache_usage: float
    num_preemptions: int
    prompt_tokens: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int


@dataclass(slots=True)
class EngineTotals:
    """What an engine has counted since its start, as `EngineStats` tells it."""

    preemptions: int = 0
    prompt_tokens: int = 0
    generation_tokens: int = 0
    prefix_queries: int = 0
    prefix_hits: int = 0

    def stats(self, running: int, waiting: int, kv_usage: float) -> EngineStats:
        return EngineStats(
            running, waiting, kv_usage, self.preemptions, self.prompt_tokens, self.generation_tokens,
            self.prefix_queries, self.prefix_hits,
        )  # fmt: skip
