"""Shell: the emulated engine's HTTP interface, with the paths, bodies and metric names of vLLM.

It is plain ASGI without a framework, so that it takes little time from the step loop. A request's handler submits the
request to the step loop and then only waits for the client to disconnect; the step loop writes the answer.
"""

from asyncio import CancelledError, get_running_loop, sleep
from collections.abc import Awaitable, Callable, MutableMapping
from importlib.metadata import version
from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from hmas.contracts.registry import CHAT_PATH
from hmas.engine.api import ApiReader, BadRequest, Generation
from hmas.engine.core import EngineCore
from hmas.engine.core.output_length import OutputLength
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import AddResult, EngineRequest
from hmas.engine.direct_send import Message, Send
from hmas.engine.formed_answer import chat_or_completion
from hmas.engine.hand_overs import KV_PATHS, BadTransfer, KvTransferConfig
from hmas.engine.kv_events_config import KvPublisherConfig
from hmas.engine.list_answers import ListAnswer
from hmas.engine.metrics import EngineTelemetry
from hmas.engine.named_answers import MessageAnswer, ResponseAnswer, anthropic_error
from hmas.engine.prompts import (
    COUNT_PATH,
    COUNTED,
    MESSAGES_PATH,
    PROMPTS,
    RESPONSES_PATH,
    TOKENIZE_PATH,
    BadPrompt,
)
from hmas.engine.response import RequestAnswer, RequestStream
from hmas.engine.shell import Stepper
from hmas.engine.sleep import SleepDesk
from hmas.engine.transfer_desk import TransferDesk
from hmas.runtime.extras import needs

MAX_BODY_BYTES = 16 << 20

# By path: how the ids of answers begin, and what writes them.
_ANSWERS: dict[str, tuple[str, Callable[[Generation, str, str, int], RequestAnswer]]] = {
    CHAT_PATH: ("chatcmpl-", chat_or_completion),
    RESPONSES_PATH: ("resp_", ResponseAnswer),
    MESSAGES_PATH: ("msg_", MessageAnswer),
}
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

if TYPE_CHECKING:
    from hmas.engine.kv_events import KvEventsPublisher

JSON = (b"content-type", b"application/json")


def publisher() -> "type[KvEventsPublisher]":
    """Returns what publishes the events of the KV cache. Raises MissingExtra where its packages are not installed."""
    with needs("kv-events", "leave --kv-events-config out"):
        from hmas.engine.kv_events import KvEventsPublisher  # loads libzmq
    return KvEventsPublisher


class EngineServer:
    """The ASGI application of one emulated engine."""

    def __init__(
        self,
        profile: EngineProfile,
        model: str,
        length: OutputLength | None = None,
        kv_events: KvPublisherConfig | None = None,
        kv_transfer: KvTransferConfig | None = None,
        address: tuple[str, int] = ("127.0.0.1", 0),
        *,
        dev_mode: bool = False,
    ) -> None:
        """`address`: where it listens, which other engines are told; needed for `kv_transfer` alone. `dev_mode`:
        whether it can be put to sleep, as vLLM can in its development mode."""
        self._kv_transfer, self.address = kv_transfer, address
        self._transfers: TransferDesk | None = None
        self._dev_mode = dev_mode
        self._sleep: SleepDesk | None = None
        self._publisher = publisher()(kv_events, profile.limits.block_size) if kv_events is not None else None
        self.core = EngineCore(profile)
        self.telemetry = EngineTelemetry(self.core, model)
        self._model = model
        self._overhead_s = profile.request_overhead_s
        self._reader = ApiReader(model, profile.limits, length or OutputLength())
        self._registry = CollectorRegistry()
        self._registry.register(self.telemetry)
        self._stepper: Stepper | None = None
        self._created_s = int(time())
        self._ids = count()
        self._routes = {
            ("GET", "/health"): self._health,
            ("GET", "/version"): self._version,
            ("GET", "/v1/models"): self._models,
            ("GET", "/metrics"): self._metrics,
            ("POST", TOKENIZE_PATH): self._tokenize,
            ("POST", COUNT_PATH): self._count_tokens,
            ("POST", "/reset_prefix_cache"): self._reset_prefix_cache,
            ("GET", "/hmas/lag"): self._lag,
            ("DELETE", "/hmas/lag"): self._reset_lag,
            ("GET", "/hmas/requests"): self._requests,
        }

    @property
    def stepper(self) -> Stepper:
        """The step loop; it is created on first use, inside the running event loop."""
        if self._stepper is None:
            publish = self._publisher.publish if self._publisher is not None else None
            self._stepper = Stepper(self.core, get_running_loop(), self.telemetry, publish)
        return self._stepper

    @property
    def transfers(self) -> TransferDesk | None:
        """What hands KV over, created on first use, as the step loop is; None without a connector, as in vLLM."""
        if self._transfers is None and self._kv_transfer is not None:
            self._transfers = TransferDesk(self._kv_transfer, self.address, self.stepper, self.telemetry)
        return self._transfers

    @property
    def sleep(self) -> SleepDesk:
        """What puts it to sleep, created on first use, as the step loop is."""
        if self._sleep is None:
            self._sleep = SleepDesk(self.stepper, self.telemetry)
        return self._sleep

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        method, path = scope["method"], scope["path"]
        if method == "POST" and path in PROMPTS and path not in COUNTED:
            await self._generate(scope, receive, send, path)
            return
        if method == "POST" and path.startswith(KV_PATHS) and self.transfers is not None:
            status, content = await self.transfers.hand_overs.serve(path, await _read_body(receive) or b"")
            await _reply(send, status, content)
            return
        if self._dev_mode and SleepDesk.knows(method, path):
            await _reply(send, *await self.sleep.serve(method, path, scope["query_string"]))
            return
        route = self._routes.get((method, path))
        if route is None:
            known = path in PROMPTS or any(path == other for _, other in self._routes)
            status = 405 if known else 404
            await _reply(send, status, orjson.dumps({"detail": "Method Not Allowed" if known else "Not Found"}))
            return
        body = await _read_body(receive)
        status, content, header = route(b"" if body is None else body)
        await _reply(send, status, content, header)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._publisher is not None:
            await self._publisher.start()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self.stepper.stop()
        if self._publisher is not None:
            self._publisher.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _generate(self, scope: Scope, receive: Receive, send: Send, path: str) -> None:
        arrival_s = monotonic()
        raw = await _read_body(receive)
        if raw is None:
            await _reply(
                send,
                413,
                _error_body(BadRequest(413, f"the body exceeds {MAX_BODY_BYTES} bytes: shorten the prompt"), path),
            )
            return
        generation = self._reader.read(raw, path)
        if isinstance(generation, BadRequest):
            await _reply(send, generation.status, _error_body(generation, path))
            return
        request_id = f"{next(self._ids):x}"
        stream = RequestStream(
            request_id, generation, self._answer(scope, request_id, generation), send, self.telemetry, arrival_s
        )
        request = self._engine_request(request_id, generation, arrival_s)
        try:
            if self.transfers is not None and generation.transfer is not None:
                request = self.transfers.prepare(request, generation, stream)
        except BadTransfer as bad:
            await _reply(send, 400, _error_body(BadRequest(400, str(bad), "kv_transfer_params"), path))
            return
        if self._overhead_s:
            await sleep(self._overhead_s)
        result = self.stepper.submit(request, stream)
        if result is not AddResult.ACCEPTED:
            self.telemetry.refused()
            error = BadRequest(503, f"the engine refused the request ({result.value}): retry later")
            await _reply(send, error.status, _error_body(error, path))
            return
        if not request.reads:  # else its head tells whether its KV came
            stream.open()
        await self._follow(request_id, stream, receive)

    async def _follow(self, request_id: str, stream: RequestStream, receive: Receive) -> None:
        """Waits until the response is complete, the client disconnects, or the server stops."""
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        except CancelledError:
            stream.fail(BadRequest(503, "the engine is shutting down: use another engine"))
            raise
        finally:
            if self.transfers is not None:
                self.transfers.left(request_id)
            if not stream.finished:
                self.stepper.abort(request_id)
                self.telemetry.aborted()

    def _engine_request(self, request_id: str, generation: Generation, arrival_s: float) -> EngineRequest:
        by_urgency = self.core.profile.limits.scheduling_policy == "urgency"
        return EngineRequest(
            request_id,
            generation.prompt_tokens,
            generation.output_tokens,
            generation.terms.urgency if by_urgency else generation.priority,
            generation.prefix_hashes,
            generation.terms.pace(arrival_s),
            generation.answer_hashes,
        )

    def _answer(self, scope: Scope, request_id: str, generation: Generation) -> RequestAnswer:
        given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
        prefix, kind = _ANSWERS.get(
            generation.path, ("cmpl-", chat_or_completion if generation.generates else ListAnswer)
        )
        response_id = prefix + (given.decode("latin-1")[:128] or f"{self._created_s:x}-{request_id}")
        return kind(generation, response_id, self._model, int(time()))

    def _health(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        return 200, b"", JSON

    def _version(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        return 200, orjson.dumps({"version": version("hmas"), "engine": "emulated"}), JSON

    def _models(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        card = {
            "id": self._model,
            "object": "model",
            "created": self._created_s,
            "owned_by": "vllm",
            "root": self.core.profile.model or self._model,
            "parent": None,
            "max_model_len": self.core.profile.limits.max_model_len,
            "permission": [],
        }
        return 200, orjson.dumps({"object": "list", "data": [card]}), JSON

    def _metrics(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        return 200, generate_latest(self._registry), (b"content-type", CONTENT_TYPE_LATEST.encode())

    def _tokenize(self, raw: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        body = self._reader.object_of(raw)
        if isinstance(body, BadRequest):
            return body.status, body.json(), JSON
        try:
            tokens = PROMPTS[TOKENIZE_PATH](body).tokens
        except BadPrompt as bad:
            return 400, BadRequest(400, str(bad), bad.param).json(), JSON
        limit = self.core.profile.limits.max_model_len
        answer = {"count": tokens, "max_model_len": limit, "tokens": list(range(tokens)), "token_strs": None}
        return 200, orjson.dumps(answer), JSON

    def _count_tokens(self, raw: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        body = self._reader.object_of(raw)
        if isinstance(body, BadRequest):
            return body.status, anthropic_error(body), JSON
        try:
            return 200, orjson.dumps({"input_tokens": PROMPTS[COUNT_PATH](body).tokens}), JSON
        except BadPrompt as bad:
            return 400, anthropic_error(BadRequest(400, str(bad), bad.param)), JSON

    def _lag(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        """Answers with the lag of the steps in seconds; quantiles are null if no step ran since the last reset."""
        lag = self.stepper.lag
        p50_s, p99_s = lag.quantiles(0.50, 0.99)
        return 200, orjson.dumps({"count": lag.count, "p50_s": p50_s, "p99_s": p99_s, "max_s": lag.max}), JSON

    def _reset_lag(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        self.stepper.lag.reset()
        return 204, b"", JSON

    def _reset_prefix_cache(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        """As in vLLM's development mode, but that it says whether it could."""
        return 200 if self.stepper.reset_cache() else 409, b"", JSON

    def _requests(self, _: bytes) -> tuple[int, bytes, tuple[bytes, bytes]]:
        return 200, orjson.dumps({"requests": list(self.telemetry.records)}), JSON


def _error_body(error: BadRequest, path: str) -> bytes:
    return anthropic_error(error) if path == MESSAGES_PATH else error.json()


async def _read_body(receive: Receive) -> bytes | None:
    """Returns the request body; None if it is longer than `MAX_BODY_BYTES`."""
    parts, size = [], 0
    while True:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY_BYTES:
            return None
        parts.append(part)
        if not message.get("more_body"):
            return parts[0] if len(parts) == 1 else b"".join(parts)


async def _reply(send: Send, status: int, body: bytes, header: tuple[bytes, bytes] = JSON) -> None:
    length = [] if status == 204 else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": [header, *length]})
    await send({"type": "http.response.body", "body": body})
