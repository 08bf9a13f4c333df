"""When a waiting request will have its turn, as its client is told."""

from itertools import islice

from hmas.contracts.gateway import QueueTurn
from hmas.gateway.agent.requests.ledger import RequestState
from hmas.gateway.agent.state import GatewayState

MAX_COUNTED = 4096
_WAITING = frozenset({RequestState.HELD, RequestState.QUEUED})


def turn(state: GatewayState, now_s: float, request_id: str) -> QueueTurn | None:
    """Returns where a request waits, None if it does not. Of the requests before it at most MAX_COUNTED are counted,
    and only this gateway's."""
    entry = state.ledger.get(request_id)
    if entry is None or entry.state not in _WAITING:
        return None
    number = 1
    for other in islice(state.ledger.by_arrival(), MAX_COUNTED):
        if other is entry:
            break
        number += other.state in _WAITING and other.pool == entry.pool
    workers = state.router.usable(entry.pool)
    queued = max(number, sum(worker.queued + worker.sent_queued for worker in workers))
    return QueueTurn(number, queued, state.waits.wait_s(now_s, entry.pool, workers) * number / queued)
