"""The shells' connection to NATS: publishes without blocking, decodes what is received, reconnects by itself."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

import nats
import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from prometheus_client import Counter, Gauge

from hmas.contracts.routes import ROUTES, Hearer, Role, Route
from hmas.runtime.logs import LogRateLimit
from hmas.runtime.security import security_of
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.permissions import inbox
from hmas.wire.subjects import pattern, token

T = TypeVar("T")
log = structlog.get_logger()

OUTBOX_LIMIT = 4096
_LOST = (
    OSError,
    asyncio.TimeoutError,
    nats.errors.StaleConnectionError,
    nats.errors.ConnectionClosedError,
    nats.errors.NoServersError,
)
INBOX = "_INBOX."
_REFUSALS = ("authorization violation", "permissions violation")  # as nats-server words them
CONNECTED = Gauge("hmas_nats_connected", "1 while connected to NATS")
DROPPED = Counter(
    "hmas_nats_dropped_total", "Messages dropped because NATS was unreachable or the outbox full", ["reason"]
)
HANDLER_FAILURES = Counter(
    "hmas_nats_handler_failures_total", "Messages received whose handler raised an exception", ["subject"]
)


class Bus:
    """One connection to NATS under the name `name`. Subscriptions are declared before `run`, which connects and
    reconnects without limit."""

    def __init__(self, settings: RuntimeSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._outbox: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue(OUTBOX_LIMIT)
        self._subscriptions: list[tuple[str, Callable[[Msg], Awaitable[None]]]] = []
        self._on_connected: list[Callable[[], Awaitable[None]]] = []
        self._connected = asyncio.Event()
        self._closing = False
        self._sparingly = LogRateLimit()
        self.client = Client()

    @property
    def connected(self) -> bool:
        return self.client.is_connected

    @property
    def replicas(self) -> int:
        """The number of NATS servers that keep a copy of what JetStream stores (HMAS_NATS_REPLICAS)."""
        return self._settings.nats_replicas

    async def wait_connected(self) -> None:
        await self._connected.wait()

    def subscribe(self, subject: str, cls: type[T], handler: Callable[[T], None]) -> None:
        """Calls `handler` with each message on `subject`, decoded as `cls`. Messages that cannot be decoded are counted
        and dropped, and so are those at which `handler` raises. Must be called before `run`."""

        async def receive(message: Msg) -> None:
            try:
                value = decode(cls, message.data)
            except WireError as error:
                left_out = self._sparingly.due(f"malformed {cls.__name__}")
                if left_out is not None:
                    log.warning("message_malformed", subject=message.subject, error=str(error), left_out=left_out)
                return
            handler(value)

        self._subscriptions.append((subject, self._guarded(subject, receive)))

    def follow(
        self,
        role: Role,
        post: Callable[[Any], None],
        *,
        own: Mapping[str, str] = MappingProxyType({}),
        receive: Mapping[type, Callable[[Any], None]] = MappingProxyType({}),
        routes: Iterable[Route] = ROUTES,
    ) -> None:
        """Subscribes to every message that the table `routes` sends to `role`. Must be called before `run`.

        A message goes to the function that `receive` has for its type. Otherwise `post` gets the event that the table
        makes of it, or the message itself if the table makes none. `own` gives the names of this worker and its pool,
        for messages of which it gets only those about itself.
        """
        for route in routes:
            for hearer in route.hearers:
                if hearer.role is role:
                    where = pattern(route, token(own[route.about])) if hearer.own else pattern(route)
                    deliver = receive.get(route.message) or _posting(hearer, post)
                    self.subscribe(where, route.message, deliver)

    def answer(self, subject: str, handler: Callable[[bytes], Awaitable[bytes | None]]) -> None:
        """Answers requests on `subject` with what `handler` returns; None sends no reply, so that another process may
        answer. A request at which `handler` raises is counted and gets no reply. Must be called before `run`."""

        async def receive(message: Msg) -> None:
            reply = await handler(message.data)
            if reply is not None and message.reply.startswith(INBOX):  # nobody publishes elsewhere in our name
                await message.respond(reply)

        self._subscriptions.append((subject, self._guarded(subject, receive)))

    def _guarded(self, subject: str, receive: Callable[[Msg], Awaitable[None]]) -> Callable[[Msg], Awaitable[None]]:
        """Returns `receive` with its exceptions counted and logged, because the NATS client only passes them to
        `error_cb`, without the message."""

        async def guarded(message: Msg) -> None:
            try:
                await receive(message)
            except Exception as error:
                HANDLER_FAILURES.labels(subject).inc()
                self._log_failure("handler_failed", error, subject=subject)

        return guarded

    def _log_failure(self, event: str, error: Exception, **fields: str) -> None:
        left_out = self._sparingly.due(f"{event} {type(error).__name__}")
        if left_out is not None:
            log.warning(event, left_out=left_out, exc_info=error, **fields)

    def on_connected(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Adds a callback that is awaited after the first connection and after each reconnection, to read the control
        bucket again for instance."""
        self._on_connected.append(callback)

    def publish(self, subject: str, value: Any) -> None:
        """Encodes a value and queues it for sending. Never blocks: while NATS cannot be reached, if the queue is full,
        or if the value cannot be encoded, it is dropped and counted."""
        if not self.client.is_connected:
            DROPPED.labels("disconnected").inc()
            return
        try:
            self._outbox.put_nowait((subject, encode(value)))
        except asyncio.QueueFull:
            DROPPED.labels("outbox_full").inc()
        except ValueError as error:  # a number that no field of its message can hold
            DROPPED.labels("not_encodable").inc()
            self._log_failure("message_not_encodable", error, subject=subject)

    async def run(self) -> None:
        """Connects, subscribes and sends until cancelled."""
        await self._connect()
        for subject, receive in self._subscriptions:
            await self.client.subscribe(subject, cb=receive)
        await self._announce()
        while True:
            subject, data = await self._outbox.get()
            try:
                await self.client.publish(subject, data)
            except nats.errors.Error as error:
                DROPPED.labels(type(error).__name__).inc()

    async def close(self) -> None:
        """Sends the queued messages, if NATS is connected, and closes the connection."""
        self._closing = True
        if not self._connected.is_set():
            return
        while self.client.is_connected and not self._outbox.empty():
            await self.client.publish(*self._outbox.get_nowait())
        try:
            await asyncio.wait_for(self.client.flush(), timeout=2)
        except (TimeoutError, nats.errors.Error):
            pass
        await self.client.close()

    async def _connect(self) -> None:
        password, tls = self._settings.nats_password(), security_of(self._settings).tls
        await self.client.connect(
            self._settings.nats_url.split(","),
            name=self._name,
            user=self._settings.nats_user or None,
            inbox_prefix=inbox(token(self._settings.nats_user)) if self._settings.nats_user else "_INBOX",
            password=password.get_secret_value() if password else None,
            user_credentials=str(self._settings.nats_creds_file) if self._settings.nats_creds_file else None,
            tls=tls.client if tls is not None else None,
            # Nobody on the way may say that the server does without TLS.
            tls_handshake_first=tls is not None,
            max_reconnect_attempts=-1,
            reconnect_time_wait=0.5,  # type: ignore[arg-type]  # annotated int, used as seconds of asyncio.sleep
            ping_interval=2,
            max_outstanding_pings=2,
            error_cb=self._on_error,
            disconnected_cb=self._on_disconnected,
            reconnected_cb=self._on_reconnected,
        )

    async def _announce(self) -> None:
        CONNECTED.set(1)
        log.info("nats_connected")
        for callback in self._on_connected:
            try:
                await callback()
            except Exception as error:
                self._log_failure("connected_callback_failed", error)
        self._connected.set()

    async def _on_error(self, error: Exception) -> None:
        if isinstance(error, ssl.SSLError) or any(word in str(error).lower() for word in _REFUSALS):
            reason = getattr(error, "verify_message", "") or str(error)
            self._sparingly.warn("nats_refused", reason=reason, user=self._settings.nats_user)
        elif isinstance(error, _LOST):
            log.debug("nats_error", error=repr(error))  # the loss of the connection is logged once, as such
        else:
            self._log_failure("nats_client_failed", error)

    async def _on_disconnected(self) -> None:
        CONNECTED.set(0)
        if not self._closing:
            log.warning("nats_disconnected")

    async def _on_reconnected(self) -> None:
        await self._announce()


def _posting(hearer: Hearer, post: Callable[[Any], None]) -> Callable[[Any], None]:
    event = hearer.event
    return post if event is None else lambda message: post(event(message))
