"""Learns how long the answers of each application usually are (Niyama §3.4). An application is a flow of a tenant."""

from hmas.contracts.request import Request
from hmas.laws.lengths import LengthHistory
from hmas.worker.agent.config import ApplicationsConfig


class Applications:
    """The history of answer lengths of each application, of at most `max_applications`.

    Beyond these a tenant with more than an even share of them forgets its own least recently used one; for one with
    fewer, the tenant with the most does. So nobody's flows push out what is known of the others.
    """

    __slots__ = ("_config", "_count", "_histories")

    def __init__(self, config: ApplicationsConfig) -> None:
        self._config = config
        self._histories: dict[str, dict[str, LengthHistory]] = {}  # by tenant and flow, least recently used first
        self._count = 0

    def learn(self, request: Request, output_tokens: int) -> None:
        """Records the answer length of a request that ended by itself, not by an error or a cancellation."""
        flows = self._histories.setdefault(request.tenant, {})
        history = flows.pop(request.flow, None)
        if history is None:
            if self._count >= self._config.max_applications:
                self._forget(request.tenant)
            self._count += 1
            history = LengthHistory(memory=self._config.memory)
        self._histories.setdefault(request.tenant, flows)[request.flow] = history
        history.add(output_tokens)

    def _forget(self, tenant: str) -> None:
        """Forgets one application, so that `tenant` can have one more."""
        if len(self._histories[tenant]) * len(self._histories) < self._config.max_applications:
            tenant = max(self._histories, key=lambda name: len(self._histories[name]))
        flows = self._histories[tenant]
        del flows[next(iter(flows))]
        self._count -= 1
        if not flows:
            del self._histories[tenant]

    def usual_tokens(self, request: Request) -> float | None:
        """Returns mean plus two standard deviations of the answer lengths of the request's application, in tokens, at
        most the request's `max_tokens`; None while fewer than `min_count` of its requests have finished."""
        history = self._histories.get(request.tenant, {}).get(request.flow)
        if history is None or history.count < self._config.min_count:
            return None
        return history.upper if request.max_tokens is None else min(history.upper, request.max_tokens)
