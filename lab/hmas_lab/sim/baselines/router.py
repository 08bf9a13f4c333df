"""Routers that hold requests back: the orders of NVIDIA Dynamo's and llm-d's queues before the engines, re-implemented
from their code. A router knows what it sent to each engine, which first and last tokens came back, and the engine's own
gauges, which here are never stale."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

from hmas.contracts.request import Cost, TaskType
from hmas.prediction.agent.backend import CostModel, CostQuery
from hmas.sim.processes.fleet import EngineLoad
from hmas.sim.workload import OfferedRequest

EPSILON_S = 1e-9
UNREAD = (TaskType.UNKNOWN, 0.0, 256.0, 1024.0)  # an estimate where perception said nothing


class DynamoRouter:
    """Dynamo's router with `--router-queue-policy wspt`, as in `scheduling/policy.rs` of lib/kv-router at 01690d4: the
    key is (strict_priority, weight / new tokens). Here each TTFT SLO has a strict tier of its own, the tightest first,
    which is how a client can state deadlines, and all weights are equal. Requests are held back while every engine has
    prompts of more than `threshold` token budgets to compute (`--router-queue-threshold`; 2, 4, 16 or off by default,
    by version; 2 leaves the most to the order). An engine is chosen by the documented cost, prefill blocks + active
    blocks with the request there. No prefix overlap is modelled, and no output is counted, as by default."""

    threshold = 2.0

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        return offered.slo.ttft_s, float(offered.request.prompt_tokens)

    def ready(self, loads: Sequence[EngineLoad]) -> Sequence[EngineLoad]:
        if all(load.waiting_tokens > self.threshold * load.profile.limits.max_num_batched_tokens for load in loads):
            return ()
        return loads

    def choose(self, offered: OfferedRequest, ready: Sequence[EngineLoad]) -> EngineLoad:
        return min(ready, key=lambda load: 2 * load.waiting_tokens + load.context_tokens)  # the own prompt adds equally

    def started(self, offered: OfferedRequest, ttft_s: float) -> None:
        pass

    def ended(self, offered: OfferedRequest, tpot_s: float) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Headroom:
    """SLO minus predicted latency on one engine, in s."""

    load: EngineLoad
    ttft_s: float
    tpot_s: float

    @property
    def deficit(self) -> int:
        """Which SLOs are missed, in llm-d's order of severity: 0 none, 1 TPOT, 2 TTFT, 3 both."""
        return 2 * (self.ttft_s < 0.0) + (self.tpot_s < 0.0)


class LlmdRouter:
    """llm-d's endpoint picker as in llm-d-inference-scheduler at 520af47, with the defaults of its plugins.

    Order: `slo-deadline-ordering-policy`, the earliest arrival + TTFT SLO first. Gate: `utilization-detector`, an
    engine's load is the larger of its queue over 5 and its KV use over 0.8; nothing leaves the queue while the mean
    over engines is 1 or more, and engines above 1 get nothing while another is not. Choice: `slo-headroom-tier-filter`
    (without its 1 % of exploration) and `latency-scorer`: engines that keep both SLOs, or else idle ones, or else those
    with the least severe deficit; of these the one closest to the SLOs, TTFT and TPOT weighing 0.8 and 0.2 over their
    ranges.

    llm-d learns its latencies while it runs. Here they are `costs`, the predictions that our own systems get, with the
    prefills waiting on an engine added up, each times the ratio of measured to predicted in the recent past.
    """

    queue_threshold, kv_threshold = 5, 0.8
    ttft_weight = 0.8
    learning = 0.02  # weight of the newest request in the mean logarithm of measured over predicted

    def __init__(self, costs: CostModel) -> None:
        self._costs = costs
        self._predicted: dict[str, Cost] = {}  # by request; the TTFT with its engine's waiting prefills
        self._own_s: dict[str, float] = {}  # uncorrected prefill by request that has no token yet
        self._ttft_bias = self._tpot_bias = 0.0

    def key(self, offered: OfferedRequest) -> tuple[float, ...]:
        return (offered.request.arrival_s + offered.slo.ttft_s,)

    def ready(self, loads: Sequence[EngineLoad]) -> Sequence[EngineLoad]:
        full = [max(load.queued / self.queue_threshold, load.kv_usage / self.kv_threshold) for load in loads]
        if sum(full) >= len(full):
            return ()
        return [load for load, share in zip(loads, full, strict=True) if share <= 1.0] or loads

    def choose(self, offered: OfferedRequest, ready: Sequence[EngineLoad]) -> EngineLoad:
        predicted = {id(load): cost for load, cost in zip(ready, self._predict(offered, ready), strict=True)}
        queues = {id(load): sum(map(self._own_s.__getitem__, load.waiting)) for load in ready}
        found = []
        for load in ready:
            cost = predicted[id(load)]
            ttft_s = (cost.ttft_s + queues[id(load)]) * exp(self._ttft_bias)
            tpot_s = cost.tpot_s * exp(self._tpot_bias)
            found.append(Headroom(load, offered.slo.ttft_s - ttft_s, offered.slo.tpot_s - tpot_s))
        chosen = self._closest(found)
        cost = predicted[id(chosen)]
        self._own_s[offered.id] = cost.ttft_s
        self._predicted[offered.id] = Cost(cost.ttft_s + queues[id(chosen)], cost.tpot_s)
        return chosen

    def started(self, offered: OfferedRequest, ttft_s: float) -> None:
        del self._own_s[offered.id]
        self._ttft_bias += self.learning * (log(ttft_s / self._predicted[offered.id].ttft_s) - self._ttft_bias)

    def ended(self, offered: OfferedRequest, tpot_s: float) -> None:
        cost = self._predicted.pop(offered.id)
        if tpot_s > 0.0:
            self._tpot_bias += self.learning * (log(tpot_s / cost.tpot_s) - self._tpot_bias)

    def _predict(self, offered: OfferedRequest, loads: Sequence[EngineLoad]) -> list[Cost]:
        task, _, output_tokens, _ = offered.recorded or UNREAD
        queries = [
            CostQuery(
                prompt_tokens=offered.request.prompt_tokens,
                output_tokens=output_tokens,
                model=load.profile.model,
                hardware=load.profile.hardware,
                running=load.outstanding - load.queued,
                waiting=load.queued,
                kv_usage=load.kv_usage,
                task=task,
            )
            for load in loads
        ]
        return self._costs.predict(queries)

    def _closest(self, found: Sequence[Headroom]) -> EngineLoad:
        least = min(each.deficit for each in found)
        if least and (idle := [each for each in found if not each.load.outstanding]):
            bucket = idle
        else:
            bucket = [each for each in found if each.deficit == least]
        ttft, tpot = _scaled([abs(e.ttft_s) for e in bucket]), _scaled([abs(e.tpot_s) for e in bucket])
        share = self.ttft_weight if ttft and tpot else 1.0 if ttft else 0.0
        ttft, tpot = ttft or [0.5] * len(bucket), tpot or [0.5] * len(bucket)
        away = [share * a + (1.0 - share) * b for a, b in zip(ttft, tpot, strict=True)]
        return bucket[away.index(min(away))].load


def _scaled(values: Sequence[float]) -> list[float]:
    """Returns the values over their range, from 0 to 1; nothing if they are all equal."""
    low, high = min(values), max(values)
    return [(value - low) / (high - low) for value in values] if high - low > EPSILON_S else []
