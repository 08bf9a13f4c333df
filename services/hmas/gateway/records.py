"""The records that one gateway keeps, put together."""

import time
from collections.abc import Callable

from hmas.gateway.agent.pools.directory import ModelDirectory
from hmas.gateway.jobs import JobWitness
from hmas.gateway.journal import RequestJournal
from hmas.gateway.metrics import RequestMetrics
from hmas.gateway.request_log import RequestLog
from hmas.gateway.spans import RequestSpans
from hmas.gateway.usage.book import UsageBook
from hmas.gateway.usage.witness import UsageWitness
from hmas.gateway.witness import Witness, Witnesses
from hmas.runtime.tracing import Tracing


class GatewayRecords:
    """The witnesses of one gateway: `witness` is all of them together. `kept`: number of ended requests that the
    journal keeps."""

    def __init__(
        self,
        gateway: str,
        directory: ModelDirectory,
        *,
        kept: int = 4096,
        tracing: Tracing | None = None,
        usage: UsageBook | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.journal = RequestJournal(gateway, kept, clock)
        self.jobs = JobWitness(gateway, clock)
        spans = () if tracing is None else (RequestSpans(tracing),)
        self.witness: Witness = Witnesses(
            self.journal,
            *spans,
            self.jobs,
            UsageWitness(usage or UsageBook(), directory),
            RequestMetrics(directory, clock),
            RequestLog(),
        )
