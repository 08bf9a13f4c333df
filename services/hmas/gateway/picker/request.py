"""One HTTP request as Envoy tells of it: one stream of its external processing.

Envoy sends headers and body, and holds the request until they are answered: with the engine that it goes to, once the
request was granted, or with an error. Then Envoy carries it out. It tells the status of the answer, and its end by
ending the stream.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, TypeVar

import grpc
import structlog
from google.protobuf.message import DecodeError

from hmas.contracts.outcome import Outcome
from hmas.gateway.engines.engines import EngineClient
from hmas.gateway.engines.proxied import ProxiedRun
from hmas.gateway.errors import ApiError, ErrorShape, InvalidRequest
from hmas.gateway.http.bodies import BodyBounds, BodyDesk, BodyReader, ClientGone, Message
from hmas.gateway.metrics import INVALID
from hmas.gateway.openai.forms import FORMS
from hmas.gateway.picker import messages
from hmas.gateway.picker.strangers import Strangers
from hmas.gateway.reception import Arrival, Reception
from hmas.gateway.shell import GatewayShell
from hmas.gateway.tenants.store import Caller
from hmas.runtime.logs import LogRateLimit
from hmas.wire.v1 import ext_proc_pb2 as pb

log = structlog.get_logger()
told = LogRateLimit()
Part = TypeVar("Part")

_BODY_MODES = (pb.ProcessingMode.BUFFERED, pb.ProcessingMode.FULL_DUPLEX_STREAMED)
_KEY_HEADERS = ("authorization", "x-api-key")  # of clients; no engine should see them


class PickedRequest:
    """Follows one stream until it ends. It is the `Proxy` of its request."""

    def __init__(
        self,
        context: Any,
        shell: GatewayShell,
        reception: Reception,
        bounds: BodyBounds,
        desk: BodyDesk,
        strangers: Strangers,
    ) -> None:
        self._context, self._shell, self._reception = context, shell, reception
        self._bounds, self._desk, self._strangers = bounds, desk, strangers
        self._arrival: Arrival | None = None
        self._errors = ErrorShape.OPENAI
        self._subset: frozenset[str] | None = None
        self._buffered = False  # the request's body comes as a whole
        self._answer_mode = 0  # how parts of the answer come, if they do
        self._trailers = False
        self._run: ProxiedRun | None = None
        self._answered = False  # by the engine
        self._over = False
        self._out: deque[pb.ProcessingResponse] = deque()
        self._writing = asyncio.Lock()
        self._writer: asyncio.Task[None] | None = None

    async def serve(self) -> None:
        """Returns when Envoy ends the stream."""
        try:
            async with self._strangers.one():
                begun = await self._refusing(self._meet())
            if begun is not None:
                await self._refusing(self._serve(*begun))
        except TimeoutError:
            await self._context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no request and API key came in time")
        finally:
            self._close()

    async def _refusing(self, part: Awaitable[Part]) -> Part | None:
        """Awaits a part of the stream; what ends it early is told to Envoy, and None is returned."""
        try:
            return await part
        except ClientGone:
            pass
        except InvalidRequest as invalid:
            INVALID.labels(invalid.error.reason).inc()
            await self._fail(invalid.error)
        except DecodeError as error:
            told.warn("picker_malformed", peer=self._context.peer(), reason=str(error)[:200])
            await self._fail(ApiError.of(Outcome.INVALID_REQUEST, "what the proxy sent is no message"))
        except Exception:
            log.exception("request_failed", client_request=self._arrival.client_id if self._arrival else "")
            await self._fail(ApiError.of(Outcome.INTERNAL, "the gateway failed: its log has the reason"))
        return None

    async def _meet(self) -> tuple[Arrival, Caller, float] | None:
        """Reads the first message and the API key in it; returns the request, who asks, and when it came, None if there
        is none."""
        first = await self._read()
        if first is None or first.WhichOneof("request") != "request_headers":
            return None
        arrival_s = time.monotonic()
        arrival = self._begin(first)
        return arrival, self._reception.authenticate(arrival), arrival_s

    async def _serve(self, arrival: Arrival, caller: Caller, arrival_s: float) -> None:
        if self._buffered:
            self._out.append(messages.go_on())
            await self._flush()
        data = await BodyReader(self._receive, self._bounds, self._desk).read(arrival.headers)
        await self._reception.open(arrival, caller, data, arrival_s, self._desk, self)
        await self._flush()
        while (message := await self._read()) is not None:
            self._hear(message)
            await self._flush()

    def _begin(self, message: pb.ProcessingRequest) -> Arrival:
        headers = messages.headers_of(message.request_headers)
        named = dict(headers)
        path = named.get(b":path", b"").partition(b"?")[0].decode("latin-1")
        arrival = self._arrival = Arrival(path, headers)
        self._subset = messages.subset_of(message.metadata_context)
        modes = message.protocol_config
        self._buffered = modes.request_body_mode == pb.ProcessingMode.BUFFERED
        self._answer_mode = modes.response_body_mode
        if path not in FORMS:
            served = ", ".join(FORMS)
            raise InvalidRequest(f"{path} is not scheduled: route {served} here", outcome=Outcome.UNKNOWN_PATH)
        self._errors = FORMS[path].errors
        if named.get(b":method") != b"POST":
            error = ApiError.of(Outcome.INVALID_REQUEST, "use the method POST for this path")
            raise _Refused(replace(error, status=405, allow="POST"))
        if message.HasField("protocol_config") and modes.request_body_mode not in _BODY_MODES:
            advice = "the proxy's request_body_mode must be BUFFERED or FULL_DUPLEX_STREAMED"
            log.error("proxy_misconfigured", advice=advice)
            raise _Refused(ApiError.of(Outcome.INTERNAL, advice))
        return arrival

    # --- from Envoy ---

    async def _read(self) -> pb.ProcessingRequest | None:
        message = await self._context.read()
        return None if message is grpc.aio.EOF else message

    async def _receive(self) -> Message:
        """Returns the next part of the request's body in ASGI's form."""
        while (message := await self._read()) is not None:
            match message.WhichOneof("request"):
                case "request_body":
                    part = message.request_body
                    more = not (part.end_of_stream or self._buffered)
                    return {"type": "http.request", "body": part.body, "more_body": more}
                case "request_trailers":
                    self._trailers = True
                    return {"type": "http.request", "body": b"", "more_body": False}
        return {"type": "http.disconnect"}

    def _hear(self, message: pb.ProcessingRequest) -> None:
        """Takes a message after the request's body. A further end of that body, which Envoy sends of long ones, is
        none."""
        match message.WhichOneof("request"):
            case "response_headers":
                self._hear_status(message)
            case "response_body":
                self._out.append(messages.answer_body(message.response_body, self._answer_mode))
                if message.response_body.end_of_stream:
                    self._complete()
            case "response_trailers":
                self._out.append(pb.ProcessingResponse(response_trailers=pb.TrailersResponse()))
                self._complete()

    def _hear_status(self, message: pb.ProcessingRequest) -> None:
        named = dict(messages.headers_of(message.response_headers))
        status = named.get(b":status", b"")
        run = self._run
        if run is not None:
            # Envoy answers for an engine that it cannot reach, and then names no time that the engine took.
            run.answered(messages.status_of(status), unreached=b"x-envoy-upstream-service-time" not in named)
        if self._over:
            return
        self._answered = True
        assert self._arrival is not None, "an answer follows a request"
        self._out.append(messages.answer_headers(self._arrival.own_headers()))
        if message.response_headers.end_of_stream:
            self._complete()

    def _complete(self) -> None:
        if self._run is not None:
            self._run.complete()

    def _close(self) -> None:
        """Ends the request with the stream: well, if its answer had begun, because Envoy does not tell an answer's end
        from a client that left."""
        self._over = True
        if self._answered:
            self._complete()
        for exchange in self._arrival.exchanges if self._arrival is not None else ():
            self._shell.leave(exchange)  # does nothing if the request has ended

    # --- Proxy ---

    def carry_out(self, run: ProxiedRun, engine: EngineClient, body: tuple[bytes, bytes], traceparent: str) -> None:
        try:
            endpoint = engine.target.address
        except ValueError as error:
            run.no_endpoint(str(error))
            return
        if self._subset is not None and endpoint not in self._subset:
            run.no_endpoint(f"the engine at {endpoint} is not one of those that the proxy may use for this request")
            return
        self._run, whole = run, b"".join(body)
        headers = [(b"content-length", b"%d" % len(whole))]
        if traceparent:
            headers.append((b"traceparent", traceparent.encode()))
        if engine.api_key:
            headers.append((b"authorization", b"Bearer " + engine.api_key.encode()))
        remove = _KEY_HEADERS[1:] if engine.api_key else _KEY_HEADERS
        mutation, metadata = messages.wanted(endpoint, headers, remove)
        if self._buffered:
            self._out.append(messages.buffered(whole, mutation, metadata))
        else:
            self._out.extend(messages.streamed(whole, mutation, metadata, trailers=self._trailers))
        self._write()

    def end(self, error: ApiError | None) -> None:
        if self._over or error is None:
            return
        if self._run is not None and error.reason == Outcome.ENGINE_REFUSED:
            return  # Envoy has sent the request, and relays what the engine refuses
        self._refuse(error)  # which breaks off an answer that has begun
        self._write()

    # --- to Envoy ---

    async def _fail(self, error: ApiError) -> None:
        if not self._over:
            self._refuse(error)
            await self._flush()

    def _refuse(self, error: ApiError) -> None:
        self._over = True
        own = self._arrival.own_headers() if self._arrival is not None else []
        self._out.append(messages.refusal(error, self._errors, own))

    def _write(self) -> None:
        """Begins to send what waits, unless that is being done."""
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._flush())

    async def _flush(self) -> None:
        async with self._writing:  # a stream takes one message at a time
            while self._out:
                try:
                    await self._context.write(self._out.popleft())
                except (grpc.RpcError, asyncio.InvalidStateError, grpc.aio.UsageError):
                    return  # the stream has ended


class _Refused(InvalidRequest):
    """A request gets an error that is ready."""

    def __init__(self, error: ApiError) -> None:
        super().__init__(error.message)
        self.error = error
