"""Books what requests used once the agent has reported how it judged them."""

import time
from collections.abc import Callable

from hmas.contracts.telemetry import GatewayTelemetry
from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.exchange import Exchange
from hmas.gateway.metrics import count_settled, pool_label, told_verdict
from hmas.gateway.usage.book import UNKNOWN_USE, UsageBook, Used
from hmas.gateway.witness import Witness

MAX_UNBOOKED = 65_536


class UsageWitness(Witness):
    """Counts requests in the book of usage and in the metrics. What the agent does not know of a request is kept until
    its report, which never comes if no pool has the request's model. `clock` returns Unix seconds."""

    def __init__(self, book: UsageBook, directory: ModelDirectory, clock: Callable[[], float] = time.time) -> None:
        self._book, self._directory, self._clock = book, directory, clock
        self._unbooked: dict[str, Used] = {}  # by request

    def settled(self, exchange: Exchange) -> None:
        if len(self._unbooked) >= MAX_UNBOOKED:
            del self._unbooked[next(iter(self._unbooked))]
        self._unbooked[exchange.request.id] = Used(exchange.key, bool(exchange.runs), exchange.cached_tokens or 0)

    def judged(self, telemetry: GatewayTelemetry) -> None:
        pool, unix_s = pool_label(self._directory, telemetry.pool), self._clock()
        for settled in telemetry.settled:
            used, told = self._unbooked.pop(settled.request_id, UNKNOWN_USE), told_verdict(settled)
            count_settled(pool, settled, told, used)
            self._book.count(unix_s, used, settled, told)
