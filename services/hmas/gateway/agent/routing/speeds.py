"""How fast a pool's kinds of engines serve, learnt from the annotations of its requests."""

from hmas.contracts.engine_kind import MAX_KINDS, EngineKind
from hmas.contracts.request import Annotation, Cost, KindCost, Request
from hmas.gateway.agent.config import GatewayPriorConfig
from hmas.laws.kind_costs import cost_among

SPEED_GAIN = 0.05  # weight of the newest annotation


class PoolSpeeds:
    """The speeds of one pool: for each kind, the seconds of prefill per prompt token and of decoding per request."""

    def __init__(self, prior: GatewayPriorConfig) -> None:
        self._prior = Cost(1.0 / prior.prefill_tokens_per_s, prior.output_tokens * prior.tpot_s)
        self._speeds: dict[EngineKind, KindCost] = {}
        self._known: tuple[KindCost, ...] = ()

    def learn(self, request: Request, annotation: Annotation) -> None:
        tokens, speeds = max(1, request.prompt_tokens), self._speeds
        for each in annotation.costs:
            before = speeds[each.kind].cost if each.kind in speeds else self._prior
            prefill_s = before.ttft_s + SPEED_GAIN * (each.cost.ttft_s / tokens - before.ttft_s)
            decode_s = before.tpot_s + SPEED_GAIN * (each.cost.tpot_s * annotation.tags.output_tokens - before.tpot_s)
            speeds[each.kind] = KindCost(each.kind, Cost(prefill_s, decode_s))
        while len(speeds) > MAX_KINDS:
            del speeds[next(iter(speeds))]
        self._known = tuple(speeds.values())

    def differ(self, annotation: Annotation | None) -> bool:
        """Returns whether a request takes longer on some kinds of engines than on others, as far as is known."""
        return len(self._known if annotation is None else annotation.costs) > 1

    def prefill_s(self, tokens: int, kinds: tuple[EngineKind, ...]) -> float:
        """Returns the seconds of a prompt's prefill on engines of these kinds."""
        return tokens * self._of(kinds).ttft_s

    def times_s(
        self, request: Request, annotation: Annotation | None, kinds: tuple[EngineKind, ...]
    ) -> tuple[float, float]:
        """Returns the seconds of a request's prefill and of its decoding on engines of these kinds."""
        if annotation is not None:
            cost = cost_among(annotation.costs, kinds)
            return cost.ttft_s, cost.tpot_s * annotation.tags.output_tokens
        speed = self._of(kinds)
        return request.prompt_tokens * speed.ttft_s, speed.tpot_s

    def _of(self, kinds: tuple[EngineKind, ...]) -> Cost:
        return cost_among(self._known, kinds) if self._known else self._prior
