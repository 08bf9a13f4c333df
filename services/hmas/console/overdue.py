"""Requests that wait for their first token: how many are past its deadline. Shares of settled requests do not tell,
because a request that nobody serves never settles."""

from collections import Counter, OrderedDict, defaultdict
from math import inf

from hmas.contracts.request import Slo
from hmas.contracts.telemetry import RequestOffered

MAX_OPEN = 20_000  # requests, the oldest of which are forgotten first
FORGOTTEN_S = 600.0  # past its deadline: its end was not heard
MAX_EARLY = 5_000


class UnansweredRequests:
    """The requests that gateways took and that are not answered yet. Where only the last token is judged, a first token
    is no answer. Gateways and workers report by themselves, so that an answer may be heard of before its request."""

    def __init__(self) -> None:
        self._open: OrderedDict[str, tuple[str, str, float, bool]] = OrderedDict()  # pool, tenant, deadline, whole
        self._early: OrderedDict[str, bool] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def offered(self, now_s: float, pool: str, request: RequestOffered) -> None:
        answered = self._early.pop(request.request_id, False)
        slo = request.slo
        if slo is None or (answered and not slo.whole):
            return
        deadline_s = now_s - request.age_s + _within_s(slo, request.max_tokens)
        self._open[request.request_id] = (pool, request.tenant, deadline_s, slo.whole)
        if len(self._open) > MAX_OPEN:
            self._open.popitem(last=False)

    def first_token(self, request_id: str) -> None:
        known = self._open.get(request_id)
        if known is None:
            self._early[request_id] = True
            if len(self._early) > MAX_EARLY:
                self._early.popitem(last=False)
        elif not known[3]:
            del self._open[request_id]

    def settled(self, request_id: str) -> None:
        self._open.pop(request_id, None)

    def overdue(self, now_s: float) -> defaultdict[str, Counter[str]]:
        """Returns by pool and tenant how many wait past their deadline."""
        lost = [name for name, (_, _, deadline_s, _) in self._open.items() if now_s - deadline_s > FORGOTTEN_S]
        for name in lost:
            del self._open[name]
        counts = defaultdict[str, Counter[str]](Counter)
        for pool, tenant, deadline_s, _ in self._open.values():
            if now_s > deadline_s:
                counts[pool][tenant] += 1
        return counts


def _within_s(slo: Slo, max_tokens: int | None) -> float:
    """Returns how long after its arrival a request is on time, s: never too short. The time of a whole answer grows
    with its length, of which only the limit is known."""
    if not slo.whole:
        return slo.ttft_s
    if slo.ttlt_s is not None:
        return slo.ttlt_s
    return slo.ttft_s + slo.tpot_s * max_tokens if max_tokens is not None else inf
