"""What is offered to a system: requests with their truth, kept apart from what may be known of them."""

from dataclasses import dataclass, replace

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.chunking import TokenDeadline
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import EngineRequest
from hmas.laws.scoring import Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedRequest:
    """`request` is what the edge knows. The rest is the truth: `output_tokens` for the engine, `slo` and `task` for
    the scorer and for estimators that stand in for a model. `recorded` is a trained model's answer beside the trace:
    task, median and 90 % quantile of the length. `content` is that of `RequestReceived`."""

    request: Request
    output_tokens: int
    slo: Slo
    task: TaskType
    prompt: str = ""
    prefix_hashes: tuple[int, ...] = ()
    recorded: tuple[TaskType, float, float] | None = None
    content: str = ""

    @property
    def id(self) -> str:
        return self.request.id

    def engine_request(self, priority: float = 0.0, pace: TokenDeadline | None = None) -> EngineRequest:
        return EngineRequest(
            self.request.id, self.request.prompt_tokens, self.output_tokens, priority, self.prefix_hashes, pace
        )


@dataclass(frozen=True, slots=True)
class Workload:
    """Requests in order of arrival, offered over `duration_s` seconds. `note` says how they came about."""

    name: str
    requests: tuple[OfferedRequest, ...]
    duration_s: float
    note: str = ""

    @property
    def rate_rps(self) -> float:
        return len(self.requests) / self.duration_s

    def fitting(self, profile: EngineProfile) -> "Workload":
        """Without the requests that the engine can never serve: no system is compared on those."""
        longest = profile.limits.max_model_len
        kept = tuple(r for r in self.requests if r.request.prompt_tokens + r.output_tokens <= longest)
        dropped = len(self.requests) - len(kept)
        note = f"{self.note}; {dropped} requests beyond {longest} tokens left out" if dropped else self.note
        return replace(self, requests=kept, note=note)


@dataclass(slots=True, kw_only=True)
class Journey:
    """What a request's client saw, filled in as the run goes. `engine_*_s`: when the engine gave the token."""

    offered: OfferedRequest
    engine_first_s: float | None = None
    engine_last_s: float | None = None
    first_token_s: float | None = None
    last_token_s: float | None = None
    output_tokens: int = 0
    outcome: Outcome | None = None  # None: not ended when the run was cut off

    def settlement(self) -> Settlement:
        """Latencies since arrival at the gateway, judged by the true SLO."""
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
