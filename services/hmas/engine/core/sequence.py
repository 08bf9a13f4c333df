"""What the engine core is asked for, and what it remembers of it."""

from dataclasses import dataclass, field
from enum import Enum, StrEnum

from hmas.engine.core.chunking import TokenDeadline


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """`output_tokens` is the true length: the engine generates exactly that many (at least 1), no one else reads it.

    `priority` (under the urgency policy: the urgency) counts unless the policy is FCFS, lower first. `prefix_hashes`
    are chained hashes of the prompt's leading full blocks (each stands for the whole prefix up to its end);
    non-negative integers. `pace` says when its tokens are due; it counts under dynamic chunking only.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    priority: float = 0.0
    prefix_hashes: tuple[int, ...] = ()
    pace: TokenDeadline | None = None

    def __post_init__(self) -> None:
        if self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(f"request {self.id}: prompt_tokens and output_tokens must be at least 1")


def expand_prefix_hashes(hash_ids: tuple[int, ...], tokens_per_hash: int, block_size: int) -> tuple[int, ...]:
    """A trace's prefix hashes (Mooncake: 512 tokens each) as hashes of engine blocks.

    ValueError unless `tokens_per_hash` is a multiple of `block_size`.
    """
    ratio, rest = divmod(tokens_per_hash, block_size)
    if rest:
        raise ValueError(f"{tokens_per_hash} tokens per hash is no multiple of the block size {block_size}")
    return tuple(h * ratio + i for h in hash_ids for i in range(ratio))


class AddResult(StrEnum):
    """A refusal is a value."""

    ACCEPTED = "accepted"
    TOO_LONG = "too_long"  # the prompt leaves no room for a token in max_model_len
    QUEUE_FULL = "queue_full"  # max_num_queued_reqs are waiting


class State(Enum):
    WAITING = 0  # new or preempted
    PREFILL = 1
    DECODE = 2
    DONE = 3


@dataclass(slots=True, eq=False)
class Sequence:
    """A request inside the engine.

    `context` is the number of tokens that hold KV slots and `generated` the tokens sampled so far; while the sequence
    is a member of the decode group both stand still here and are read through the group. `target` is what prefill has
    to compute: the prompt, after a preemption also the tokens sampled before it.
    """

    request: EngineRequest
    order: int
    output_tokens: int  # capped by max_model_len
    target: int
    state: State = State.WAITING
    context: int = 0
    generated: int = 0
    shared: list[int] = field(default_factory=list)  # hashes of the blocks it holds a reference to
    first_due_s: float | None = None  # the start of its pace, once it decodes
    hashed: int = 0  # leading prompt blocks already looked up or entered in the prefix cache

    @property
    def id(self) -> str:
        return self.request.id
