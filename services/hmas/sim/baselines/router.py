"""Routers that hold requests back: the orders of NVIDIA Dynamo's and llm-d's queues before the engines, re-implemented
from their documentation. A router knows what it sent to each engine and which first and last tokens came back."""

from dataclasses import dataclass
from typing import Protocol

from hmas.engine.core.profile import EngineProfile
from hmas.sim.workload import OfferedRequest


@dataclass(slots=True)
class EngineLoad:
    """What a router has sent to one engine and not seen end: `waiting` of the `outstanding` requests have no token yet,
    and their prompts have `waiting_tokens`; the prompts of the others have `context_tokens`."""

    profile: EngineProfile
    outstanding: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    context_tokens: int = 0

    def sent(self, tokens: int) -> None:
        self.outstanding += 1
        self.waiting += 1
        self.waiting_tokens += tokens

    def started(self, tokens: int) -> None:
        self.waiting -= 1
        self.waiting_tokens -= tokens
        self.context_tokens += tokens

    def ended(self, tokens: int, *, started: bool) -> None:
        if not started:
            self.started(tokens)
        self.outstanding -= 1
        self.context_tokens -= tokens


class HoldingRouter(Protocol):
    """The queue before the engines: in which order requests leave it, while which engines take one, and which of these
    takes it."""

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        """Returns the place of a waiting request, lower first."""
        ...

    def takes(self, load: EngineLoad) -> bool:
        """Tells whether an engine is sent a request now."""
        ...

    def cost(self, offered: OfferedRequest, load: EngineLoad) -> float:
        """Returns how badly an engine suits a request; the lowest gets it."""
        ...


class DynamoRouter:
    """Dynamo's router with `--router-queue-policy wspt`: a strict tier for each TTFT SLO, the tightest first, and the
    shortest prompt first within it (Smith's rule with equal weights). Requests are held back while every engine has
    prompts of more than `threshold` token budgets to compute, the default of `--router-queue-threshold` in one version
    (others: 4, 16, off). Engines are chosen by outstanding requests, because prefix overlap is not modelled here."""

    threshold = 2.0

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        return offered.slo.ttft_s, float(offered.request.prompt_tokens)

    def takes(self, load: EngineLoad) -> bool:
        return load.waiting_tokens <= self.threshold * load.profile.limits.max_num_batched_tokens

    def cost(self, offered: OfferedRequest, load: EngineLoad) -> float:
        return float(load.outstanding)


class LlmdRouter:
    """llm-d's endpoint picker with `slo-deadline-ordering-policy` and the latency scorer: the earliest arrival + TTFT
    SLO leaves the queue first, while some engine has fewer than `queue_depth` requests without a token. It goes where
    the headroom, SLO minus predicted latency, is positive and least; or, where it is nowhere, to the least deficit.
    TTFT and TPOT weigh 0.8 and 0.2. llm-d learns its latencies; ours come from the engine's own cost model, so they are
    better."""

    queue_depth = 5
    ttft_weight = 0.8

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        return (offered.request.arrival_s + offered.slo.ttft_s,)

    def takes(self, load: EngineLoad) -> bool:
        return load.waiting < self.queue_depth

    def cost(self, offered: OfferedRequest, load: EngineLoad) -> float:
        cost, slo = load.profile.cost, offered.slo
        tokens = load.waiting_tokens + offered.request.prompt_tokens
        steps = -(-tokens // load.profile.limits.max_num_batched_tokens)
        step_s = cost.step_s(0, load.outstanding - load.waiting, load.context_tokens, 0.0)
        ttft_s = steps * step_s + cost.prefill_s(tokens, 0.0)
        tpot_s = cost.step_s(0, load.outstanding + 1, load.context_tokens + tokens, 0.0)
        headroom = (
            self.ttft_weight * (slo.ttft_s - ttft_s) / slo.ttft_s
            + (1.0 - self.ttft_weight) * (slo.tpot_s - tpot_s) / slo.tpot_s
        )
        enough = ttft_s <= slo.ttft_s and tpot_s <= slo.tpot_s
        return headroom if enough else NOWHERE - headroom


NOWHERE = 1e6  # above any headroom, so that engines without it come last
