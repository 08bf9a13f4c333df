"""Learns how long the answers of each application usually are (Niyama §3.4). An application is a flow of a tenant."""

from hmas.contracts.request import Request
from hmas.laws.lengths import LengthHistory
from hmas.worker.agent.config import ApplicationsConfig


class Applications:
    """The history of answer lengths of each application; at `max_applications` the one known longest is forgotten."""

    __slots__ = ("_config", "_histories")

    def __init__(self, config: ApplicationsConfig) -> None:
        self._config = config
        self._histories: dict[tuple[str, str], LengthHistory] = {}

    def learn(self, request: Request, output_tokens: int) -> None:
        """Records the answer length of a request that ended by itself, not by an error or a cancellation."""
        name = (request.tenant, request.flow)
        history = self._histories.get(name)
        if history is None:
            if len(self._histories) >= self._config.max_applications:
                del self._histories[next(iter(self._histories))]
            history = self._histories[name] = LengthHistory(memory=self._config.memory)
        history.add(output_tokens)

    def usual_tokens(self, request: Request) -> float | None:
        """Returns mean plus two standard deviations of the answer lengths of the request's application, in tokens, at
        most the request's `max_tokens`; None while fewer than `min_count` of its requests have finished."""
        history = self._histories.get((request.tenant, request.flow))
        if history is None or history.count < self._config.min_count:
            return None
        return history.upper if request.max_tokens is None else min(history.upper, request.max_tokens)
