"""Requests to the engine core, and the state that the core keeps of each."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hmas.engine.core.chunking import TokenDeadline


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """A request as the engine core takes it.

    `output_tokens` is the true output length: the engine generates exactly that many tokens (at least 1), and no other
    component reads it. `priority` (the urgency, under the urgency policy) orders the queue, lower first; FCFS ignores
    it. `prefix_hashes` are chained hashes, non-negative integers, of the prompt's leading full blocks; each stands for
    the whole prefix up to its block's end. `answer_hashes` go on from them over the blocks that the answer fills, so
    that a later prompt with the answer in it finds these too. `pace` holds the token deadlines, which only dynamic
    chunking uses. `max_tokens` is the most output tokens that its client allows, by which some admissions reserve
    memory; None means that the client names no bound. `computed_tokens` of the prompt need not be computed, because
    their KV comes with the request, as from a prefill on another engine. `reads`: that KV must be read from the other
    engine first, into memory that is taken before. `lends`: after its last token its own KV stays, for another engine
    to read, until it is given back (`HandedKv` says how, for both).
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    priority: float = 0.0
    prefix_hashes: tuple[int, ...] = ()
    pace: TokenDeadline | None = None
    answer_hashes: tuple[int, ...] = ()
    max_tokens: int | None = None
    computed_tokens: int = 0
    reads: bool = False
    lends: bool = False

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"request {self.id}: prompt_tokens and output_tokens must be at least 1, got {self.prompt_tokens} "
                f"and {self.output_tokens}"
            )


def expand_prefix_hashes(hash_ids: tuple[int, ...], tokens_per_hash: int, block_size: int) -> tuple[int, ...]:
    """Converts a trace's prefix hashes (Mooncake: one per 512 tokens) into hashes of engine blocks.

    Raises ValueError unless `tokens_per_hash` is a multiple of `block_size`.
    """
    ratio, rest = divmod(tokens_per_hash, block_size)
    if rest:
        raise ValueError(
            f"the trace has one prefix hash per {tokens_per_hash} tokens, which is not a multiple of the engine's "
            f"block size {block_size}: choose a profile whose block_size divides it"
        )
    return tuple(h * ratio + i for h in hash_ids for i in range(ratio))


class AddResult(StrEnum):
    """The core's answer to a new request: accepted, or the reason why it was refused."""

    ACCEPTED = "accepted"
    TOO_LONG = "too_long"  # the prompt leaves no room for a token in max_model_len
    QUEUE_FULL = "queue_full"  # max_num_queued_reqs are waiting


class State(Enum):
    WAITING = 0  # new or preempted
    PREFILL = 1
    DECODE = 2
    DONE = 3
    READING = 4  # its memory is taken; its prompt's KV is on its way from another engine, or has come and it waits


@dataclass(slots=True, eq=False)
class Sequence:
    """The state of a request inside the engine.

    `order` is its rank by arrival. `context` is the number of tokens that hold KV slots, `generated` the number of
    tokens sampled so far; while the sequence is a member of the decode group both are out of date here and must be read
    from the group. `target` is the number of tokens that prefill computes: the prompt, and after a preemption also the
    tokens sampled before it.
    """

    request: EngineRequest
    order: int
    output_tokens: int  # capped by max_model_len
    target: int
    state: State = State.WAITING
    context: int = 0
    generated: int = 0
    shared: list[int] = field(default_factory=list)  # hashes of the blocks it holds a reference to
    first_due_s: float | None = None  # when its first token was due, known once it decodes under dynamic chunking
    hashed: int = 0  # leading prompt blocks already looked up or entered in the prefix cache
    cached: int = 0  # tokens of the prompt that were in the cache when it was admitted
    read: bool = False  # its prompt's KV was read from another engine, or is on its way

    @property
    def id(self) -> str:
        return self.request.id
