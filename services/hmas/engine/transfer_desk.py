"""Shell: requests whose KV the emulated engine leaves for another engine, or reads of one."""

from asyncio import get_running_loop
from dataclasses import replace

import orjson

from hmas.engine.api import BadRequest, Generation
from hmas.engine.core.sequence import EngineRequest
from hmas.engine.hand_overs import HandOvers, KvTransferConfig, RemoteKv, is_lender, remote_kv_of
from hmas.engine.metrics import EngineTelemetry
from hmas.engine.response import RequestStream
from hmas.engine.shell import Stepper


class TransferDesk:
    """Sees to the `kv_transfer_params` of requests, inside the running event loop. `address`: host and port at which
    other engines reach this one."""

    def __init__(
        self, config: KvTransferConfig, address: tuple[str, int], stepper: Stepper, telemetry: EngineTelemetry
    ) -> None:
        self._recompute, self._stepper = config.recompute, stepper
        size = stepper.core.profile.limits.block_size
        self.hand_overs = HandOvers(config, address, size, get_running_loop(), stepper, telemetry.lease_expired)
        self._reading: dict[str, tuple[RemoteKv, EngineRequest, RequestStream]] = {}
        stepper.read = self._read

    def prepare(self, request: EngineRequest, generation: Generation, stream: RequestStream) -> EngineRequest:
        """Returns the request with what its `kv_transfer_params` ask for. Raises BadTransfer."""
        if is_lender(generation.transfer) and not generation.stream:
            tokens = generation.prompt_tokens
            stream.lent = lambda cached: orjson.dumps(self.hand_overs.lend(request.id, tokens, cached))
            return replace(request, lends=True)
        remote = remote_kv_of(generation.transfer)
        if remote is None:
            return request
        request = replace(request, reads=True)
        self._reading[request.id] = remote, request, stream
        return request

    def left(self, request_id: str) -> None:
        """Forgets a request that has ended, or whose client has gone."""
        if self._reading.pop(request_id, None) is not None:
            self.hand_overs.stop(request_id)

    def _read(self, request_id: str, tokens: int) -> None:
        self.hand_overs.read(request_id, self._reading[request_id][0], tokens, self._unread)

    def _unread(self, request_id: str, reason: str) -> None:
        """Computes a prompt here whose KV did not come, or fails its request."""
        _, request, stream = self._reading[request_id]
        self._stepper.abort(request_id)
        if self._recompute:
            self._stepper.submit(replace(request, reads=False), stream)
        else:
            stream.fail(BadRequest(500, reason))
