"""What the log says of requests: those that the mesh failed, and runs that stalled."""

import structlog

from hmas.gateway.exchange import Exchange
from hmas.gateway.witness import TROUBLE, Witness

log = structlog.get_logger()


class RequestLog(Witness):
    def ended(self, exchange: Exchange) -> None:
        run = exchange.runs[-1]
        if run.stalled:
            log.warning("run_stalled", request=exchange.request.id, client_request=exchange.client_id,
                        worker=run.worker, engine=run.engine, output_tokens=run.output_tokens,
                        reason=run.stalled)  # fmt: skip

    def settled(self, exchange: Exchange) -> None:
        if exchange.outcome in TROUBLE:
            log.warning("request_failed", request=exchange.request.id, client_request=exchange.client_id,
                        outcome=exchange.outcome.value, message=exchange.message, tenant=exchange.request.tenant,
                        output_tokens=exchange.output_tokens)  # fmt: skip
