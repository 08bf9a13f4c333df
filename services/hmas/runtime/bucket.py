"""The control bucket, a key-value store of NATS JetStream: last topologies and control tuples, pins and leases."""

import asyncio
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
import structlog
from nats.js.api import KeyValueConfig, StorageType, StreamConfig
from nats.js.kv import KeyValue

from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.subjects import AUDIT, AUDIT_STREAM, CONTROL_BUCKET

T = TypeVar("T")
log = structlog.get_logger()
TIMEOUT_S = 3.0
AUDIT_MAX_MESSAGES = 10_000


class BucketUnavailable(Exception):
    """The control bucket cannot be read or written now, because NATS or its JetStream cannot be reached."""


_UNREACHABLE = (nats.errors.Error, asyncio.TimeoutError, OSError)


class ControlBucket:
    """Reads and writes values in the control bucket. Every method raises BucketUnavailable while NATS or its JetStream
    cannot be reached."""

    def __init__(self, bus: Bus, client: str) -> None:
        self._bus = bus
        self._client = client
        self._kv: KeyValue | None = None

    async def _open(self) -> KeyValue:
        if self._kv is None:
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            try:
                self._kv = await js.key_value(CONTROL_BUCKET)
            except nats.js.errors.BucketNotFoundError:
                config = KeyValueConfig(
                    bucket=CONTROL_BUCKET, history=1, storage=StorageType.FILE, replicas=self._bus.replicas
                )
                self._kv = await js.create_key_value(config)
        return self._kv

    async def put(self, key: str, value: Any) -> None:
        try:
            await (await self._open()).put(key, encode(value))
        except _UNREACHABLE as error:
            self._kv = None  # open the bucket anew next time: a restarted server may have lost it
            raise BucketUnavailable(str(error)) from error

    async def read(self, cls: type[T], key: str) -> tuple[T, float] | None:
        """Returns the value of type `cls` under `key`, and its age in seconds by the server's clock alone. None if the
        key has no value or it cannot be decoded."""
        try:
            kv = await self._open()
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            stream, prefix = f"KV_{CONTROL_BUCKET}", f"$KV.{CONTROL_BUCKET}."
            entry = await kv.get(key)
            stored = await js.get_msg(stream, entry.revision)
            await kv.put(f"clock.{self._client}", b"")
            clock = await js.get_last_msg(stream, f"{prefix}clock.{self._client}")
        except (nats.js.errors.KeyNotFoundError, nats.js.errors.NotFoundError):
            return None
        except _UNREACHABLE as error:
            self._kv = None
            raise BucketUnavailable(str(error)) from error
        try:
            value = decode(cls, entry.value or b"")
        except WireError as error:
            log.warning("bucket_value_malformed", key=key, error=str(error))
            return None
        age_s = (clock.time - stored.time).total_seconds() if clock.time and stored.time else float("inf")
        return value, max(0.0, age_s)

    async def get_raw(self, key: str) -> tuple[bytes, int] | None:
        """Returns the bytes under `key` and their revision, for `swap`; None if there is no such key."""
        try:
            entry = await (await self._open()).get(key)
        except nats.js.errors.KeyNotFoundError:
            return None
        except _UNREACHABLE as error:
            self._kv = None
            raise BucketUnavailable(str(error)) from error
        return entry.value or b"", entry.revision or 0

    async def swap(self, key: str, value: bytes, revision: int) -> int | None:
        """Writes `value` if the key still has `revision` (0: if the key does not exist yet). Returns the new revision,
        or None if another process has written in between."""
        try:
            return int(await (await self._open()).update(key, value, last=revision))
        except nats.js.errors.KeyWrongLastSequenceError:
            return None
        except _UNREACHABLE as error:
            self._kv = None
            raise BucketUnavailable(str(error)) from error

    async def ensure_audit_stream(self) -> None:
        """Creates the JetStream stream that stores the last AUDIT_MAX_MESSAGES audit records, or updates its settings
        if it exists."""
        config = StreamConfig(
            name=AUDIT_STREAM, subjects=[AUDIT], storage=StorageType.FILE, max_msgs=AUDIT_MAX_MESSAGES,
            num_replicas=self._bus.replicas,
        )  # fmt: skip
        js = self._bus.client.jetstream(timeout=TIMEOUT_S)
        try:
            try:
                await js.add_stream(config)
            except nats.js.errors.BadRequestError:
                await js.update_stream(config)
        except _UNREACHABLE as error:
            raise BucketUnavailable(str(error)) from error
