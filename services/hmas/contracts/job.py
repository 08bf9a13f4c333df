"""Jobs: what the gateway knows of the job that a request belongs to.

A job is a chain of calls to models, such as an agent's run, that a person waits for as a whole. Each of its calls is a
stage, which is one request.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class PrefixChain:
    """The beginnings of a prompt, each as a digest of 64 bits of everything before it, the tenant included.

    `thread` and `turn` are 0 if there is no such message; `opening`: there is none after the first.
    """

    nodes: tuple[int, ...] = ()  # from the shortest to the longest
    ends: tuple[int, ...] = ()  # the prompt's estimated tokens up to each node
    whole: bool = False  # the last node stands for the whole prompt
    # Digest of the first message of a user, with the tenant but without what stands before it, so that agents with
    # different system prompts share it.
    thread: int = 0
    turn: int = 0  # the same of the message after it, of whichever role

    @property
    def opening(self) -> bool:
        return self.thread != 0 and self.turn == 0


NO_CHAIN = PrefixChain()


class LinkedBy(StrEnum):
    """How the job of a request was found: its client named it, the prompt continues a former one, its first message of
    a user is that of a former one, or neither."""

    DECLARED = "declared"
    PREFIX = "prefix"
    THREAD = "thread"
    NEW = "new"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One stage of a job: its number in it from 0 on, and the request before it, which is empty for the first one that
    this gateway has seen. `job` is an id of 16 hexadecimal digits."""

    job: str
    index: int
    parent: str
    linked: LinkedBy


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """What a worker is told of the job of a request. `index` is the stage's number in it, from 0 on. `left_s`: seconds
    from the request's arrival until the whole job is to be done, below 0 if that is past; None: nobody stated it.

    The rest is forecast from jobs of the same template that ended. `output_tokens` and `output_tokens_p90` are the
    median and the 90 % quantile of this stage's answer; None: nothing is known yet. `future_*` are medians of what
    follows this stage: its prompt and output tokens, and the seconds in which no model works for the job.
    """

    job: str
    index: int
    left_s: float | None = None
    output_tokens: float | None = None
    output_tokens_p90: float | None = None
    future_stages: float = 0.0
    future_prompt_tokens: float = 0.0
    future_output_tokens: float = 0.0
    future_outside_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageArrived:
    """A request came. `declared`: the job that its client names, or empty."""

    request_id: str
    tenant: str
    chain: PrefixChain
    declared: str = ""


@dataclass(frozen=True, slots=True)
class StageLinked:
    """The request is this stage of a job."""

    request_id: str
    stage: Stage


MAX_TOLD_JOBS = 1000  # in one reply


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """What a gateway knows of a job, from the calls that came to it.

    `template` is the digest, in hexadecimal, of the first message of the job's first prompt, because agents with one
    system prompt share it; empty: not known. `begun_age_s`: how long ago its first call came; `quiet_s`: since when
    none of its calls is open, 0 while one is; `busy_s`: the sum of its ended calls' durations. `cached_tokens` is what
    engines said to have found in their caches. `failed` are calls that ended otherwise than finished. `request_id` is
    that of the last call.
    """

    job: str
    tenant: str
    model: str
    template: str
    calls: int
    running: int
    failed: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    begun_age_s: float
    quiet_s: float
    busy_s: float
    request_id: str


@dataclass(frozen=True, slots=True)
class JobsReply:
    """The jobs that a gateway has seen lately, those whose calls came last first; `left_out` more are known."""

    gateway: str
    jobs: tuple[JobRow, ...]
    left_out: int
