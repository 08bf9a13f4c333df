"""Workloads: the requests that are offered to a system, with the truth about them kept apart from what the system may
know."""

from dataclasses import dataclass, replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import EngineRequest
from hmas.laws.scoring import Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRequest:
    """One request of a workload. `request` is what the gateway knows when it arrives. The other fields are the truth:
    `output_tokens` is for the engine, `slo` and `task` are for the scorer and for estimators that stand in for a model.
    `recorded` is what the perception that ships says of the prompt, as the fields of its `Estimate`; None if it was not
    asked. `content` is equal for a request that is sent again, and `job` and `job_budget_s` are what its client says of
    its job, as in `RequestReceived`. `computed_tokens` as in `EngineRequest`."""

    request: Request
    output_tokens: int
    slo: Slo
    task: TaskType
    prompt: str = ""
    prefix_hashes: tuple[int, ...] = ()
    answer_hashes: tuple[int, ...] = ()
    recorded: tuple[TaskType, float, float, float] | None = None
    content: str = ""
    job: str = ""
    job_budget_s: float | None = None
    computed_tokens: int = 0

    @property
    def id(self) -> str:
        return self.request.id

    def engine_request(self, priority: float = 0.0, pace: TokenDeadline | None = None) -> EngineRequest:
        request = self.request
        return EngineRequest(
            request.id,
            request.prompt_tokens,
            self.output_tokens,
            priority,
            self.prefix_hashes,
            pace,
            self.answer_hashes,
            request.max_tokens,
            self.computed_tokens,
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, offered over `duration_s` seconds. `note` says how the workload was made."""

    name: str
    requests: tuple[OfferedRequest, ...]
    duration_s: float
    note: str = ""

    @property
    def rate_rps(self) -> float:
        return len(self.requests) / self.duration_s

    def fitting(self, profile: EngineProfile) -> "Workload":
        """Returns the workload without the requests that are longer than the engine's context and that no system could
        serve."""
        longest = profile.limits.max_model_len
        kept = tuple(r for r in self.requests if r.request.prompt_tokens + r.output_tokens <= longest)
        dropped = len(self.requests) - len(kept)
        note = f"{self.note}; {dropped} requests beyond {longest} tokens left out" if dropped else self.note
        return replace(self, requests=kept, note=note)


@dataclass(slots=True, kw_only=True)
class Journey:
    """What the client of a request saw, filled in during the run. All times are instants in s of virtual time:
    `engine_first_s` and `engine_last_s` are when the engine issued the token, `first_token_s` and `last_token_s` are
    when the client received it; None means not yet. `granted_tokens` is the length bound of its last grant, and
    `bound_tokens` the one that its worker held it to once its tags had come; both are None if no worker granted it.
    `gateway` names the gateway that the request came to; `lost`: that gateway ended before the request did.
    `submitted_s` and `granted_s` are when a worker first had it and first dispatched it; `masked`: its annotation came
    before that. `cached_tokens`: those of its prompt that the engine had cached."""

    offered: OfferedRequest
    engine_first_s: float | None = None
    engine_last_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    output_tokens: int = 0
    granted_tokens: float | None = None
    bound_tokens: float | None = None
    outcome: Outcome | None = None  # None: not ended when the run was cut off
    gateway: str = ""
    lost: bool = False
    submitted_s: float | None = None
    granted_s: float | None = None
    masked: bool = False
    cached_tokens: int | None = None

    @property
    def waited(self) -> bool:
        """Whether the worker dispatched it later than at the instant at which it came."""
        return self.granted_s is not None and self.submitted_s is not None and self.granted_s > self.submitted_s

    def settlement(self) -> Settlement:
        """Returns the settlement of the request: its latencies since arrival at the gateway, and its true SLO. A
        request that never ended counts as timed out."""
        request = self.offered.request
        first, last = self.first_token_s, self.last_token_s
        ended = self.outcome is not None
        tpot = None
        if ended and first is not None and last is not None:
            tpot = (last - first) / (self.output_tokens - 1) if self.output_tokens > 1 else 0.0
        return Settlement(
            request_id=request.id,
            tenant=request.tenant,
            task=self.offered.task,
            model=request.model,
            outcome=self.outcome or Outcome.TIMED_OUT,
            slo=self.offered.slo,
            prompt_tokens=request.prompt_tokens,
            output_tokens=self.output_tokens,
            ttft_s=None if first is None else first - request.arrival_s,
            tpot_s=tpot,
            last_token_s=None if last is None else last - request.arrival_s,
            offered_s=request.arrival_s,
        )
