"""How long the answers of each application usually are (Niyama §3.4). An application is a flow of a tenant."""

from hmas.contracts.request import Request
from hmas.laws.niyama import LengthHistory

MIN_COUNT = 8  # finished requests before a history is trusted
MEMORY = 256  # effective number of finished requests remembered
MAX_APPLICATIONS = 4096


class Applications:
    """Bounded: the application first heard of goes first."""

    __slots__ = ("_histories",)

    def __init__(self) -> None:
        self._histories: dict[tuple[str, str], LengthHistory] = {}

    def learn(self, request: Request, output_tokens: int) -> None:
        """A request ended by itself with this real length."""
        name = (request.tenant, request.flow)
        history = self._histories.get(name)
        if history is None:
            if len(self._histories) >= MAX_APPLICATIONS:
                del self._histories[next(iter(self._histories))]
            history = self._histories[name] = LengthHistory(MEMORY)
        history.add(output_tokens)

    def usual_tokens(self, request: Request) -> float | None:
        """Mean and two standard deviations; None while too little is known. A client's bound caps it."""
        history = self._histories.get((request.tenant, request.flow))
        if history is None or history.count < MIN_COUNT:
            return None
        return history.upper if request.max_tokens is None else min(history.upper, request.max_tokens)
