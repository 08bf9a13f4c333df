"""The key-value stores of NATS JetStream: the control bucket on disk (last topologies and control tuples, pins), and
the leases in the server's memory."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic
from typing import Any, TypeVar

import nats.errors
import nats.js.errors
import structlog
from nats.js.api import KeyValueConfig, StorageType, StreamConfig
from nats.js.kv import KeyValue
from prometheus_client import Gauge

from hmas.contracts.past import PastBlock
from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.subjects import AUDIT, AUDIT_STREAM, CONTROL_BUCKET, GAIN_STREAM, GAINS, LEASE_BUCKET, PAST_BUCKET

T = TypeVar("T")
log = structlog.get_logger()
TIMEOUT_S = 3.0
AUDIT_MAX_MESSAGES = 10_000
GAINS_MAX_AGE_S = 8 * 86_400.0  # the last seven days whole
GAINS_MAX_BYTES = 64 * 2**20  # about 1 kB a minute and pool
PAST_MAX_AGE_S = 3600.0
PAST_MAX_BYTES = 256 * 2**20
FAILING = Gauge(
    "hmas_bucket_failing_seconds",
    "Seconds for which every write to the control bucket has failed while NATS itself could be reached; 0: none failed",
)


class BucketUnavailable(Exception):
    """A bucket cannot be read or written now, because NATS or its JetStream cannot be reached."""


_UNREACHABLE = (nats.errors.Error, asyncio.TimeoutError, OSError)


class _Bucket:
    """A bucket that is opened when it is first used, and again after each error. `makes`: one that is missing is made;
    not every user of NATS may do that."""

    def __init__(
        self,
        bus: Bus,
        name: str,
        storage: StorageType,
        *,
        makes: bool = True,
        max_age_s: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self._bus = bus
        self._makes = makes
        self._config = KeyValueConfig(
            bucket=name, history=1, storage=storage, replicas=bus.replicas, ttl=max_age_s, max_bytes=max_bytes
        )
        self._kv: KeyValue | None = None

    async def _open(self) -> KeyValue:
        if self._kv is None:
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            try:
                self._kv = await js.key_value(self._config.bucket)
            except nats.js.errors.BucketNotFoundError:
                if not self._makes:
                    raise BucketUnavailable(
                        f"there is no bucket {self._config.bucket} yet: meta and statera make it"
                    ) from None
                self._kv = await js.create_key_value(self._config)
        return self._kv

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Raises BucketUnavailable for what NATS raises while it or its JetStream cannot be reached."""
        try:
            yield
        except _UNREACHABLE as error:
            self._kv = None  # open the bucket anew next time: a restarted server may have lost it
            raise BucketUnavailable(f"{type(error).__name__}: {error}") from error


class ControlBucket(_Bucket):
    """Reads and writes values in the control bucket. Every method raises BucketUnavailable while NATS or its JetStream
    cannot be reached."""

    def __init__(self, bus: Bus, client: str, clock: Callable[[], float] = monotonic, *, makes: bool = True) -> None:
        super().__init__(bus, CONTROL_BUCKET, StorageType.FILE, makes=makes)
        self._client = client
        self._clock = clock
        self._failing_since_s: float | None = None

    @property
    def failing_s(self) -> float:
        """Seconds for which every write has failed while NATS itself could be reached; 0 if the last one did not."""
        if self._failing_since_s is None or not self._bus.connected:
            return 0.0
        return self._clock() - self._failing_since_s

    async def put(self, key: str, value: Any) -> None:
        try:
            with self._reaching():
                await (await self._open()).put(key, encode(value))
        except BucketUnavailable:
            if self._failing_since_s is None or not self._bus.connected:
                self._failing_since_s = self._clock()
            raise
        self._failing_since_s = None

    async def read(self, cls: type[T], key: str) -> tuple[T, float] | None:
        """Returns the value of type `cls` under `key`, and its age in seconds by the server's clock alone. None if the
        key has no value or it cannot be decoded."""
        with self._reaching():
            kv = await self._open()
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            stream, prefix = f"KV_{CONTROL_BUCKET}", f"$KV.{CONTROL_BUCKET}."
            try:
                entry = await kv.get(key)
                stored = await js.get_msg(stream, entry.revision)
                await kv.put(f"clock.{self._client}", b"")
                clock = await js.get_last_msg(stream, f"{prefix}clock.{self._client}")
            except nats.js.errors.NotFoundError:
                return None
        try:
            value = decode(cls, entry.value or b"")
        except WireError as error:
            log.warning("bucket_value_malformed", key=key, error=str(error))
            return None
        age_s = (clock.time - stored.time).total_seconds() if clock.time and stored.time else float("inf")
        return value, max(0.0, age_s)

    async def ensure_audit_stream(self) -> None:
        """Creates the JetStream stream that stores the last AUDIT_MAX_MESSAGES audit records, or updates its settings
        if it exists."""
        await self._ensure_stream(
            StreamConfig(
                name=AUDIT_STREAM, subjects=[AUDIT], storage=StorageType.FILE, max_msgs=AUDIT_MAX_MESSAGES,
                num_replicas=self._bus.replicas,
            )
        )  # fmt: skip

    async def ensure_gain_stream(self) -> None:
        """Does the same with the stream that stores what scheduling would have brought in the last GAINS_MAX_AGE_S."""
        await self._ensure_stream(
            StreamConfig(
                name=GAIN_STREAM, subjects=[GAINS], storage=StorageType.FILE, max_age=GAINS_MAX_AGE_S,
                max_bytes=GAINS_MAX_BYTES, num_replicas=self._bus.replicas,
            )
        )  # fmt: skip

    async def _ensure_stream(self, config: StreamConfig) -> None:
        with self._reaching():
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            try:
                await js.add_stream(config)
            except nats.js.errors.BadRequestError:
                await js.update_stream(config)


class LeaseBucket(_Bucket):
    """The leases, which NATS keeps in memory, so that a full disk does not stop their renewal. A NATS server that
    starts anew has none. Both methods raise BucketUnavailable while NATS or its JetStream cannot be reached."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, LEASE_BUCKET, StorageType.MEMORY)

    async def get(self, key: str) -> tuple[bytes, int] | None:
        """Returns the bytes under `key` and their revision, for `swap`; None if the key never had a value. A deleted
        key has no bytes, but it has a revision, which the next write must name."""
        with self._reaching():
            try:
                entry = await (await self._open()).get(key)
            except nats.js.errors.KeyNotFoundError as error:
                return None if error.entry is None else (b"", error.entry.revision or 0)
        return entry.value or b"", entry.revision or 0

    async def swap(self, key: str, value: bytes, revision: int) -> int | None:
        """Writes `value` if the key still has `revision` (0: if the key does not exist yet). Returns the new revision,
        or None if another process has written in between."""
        with self._reaching():
            try:
                return int(await (await self._open()).update(key, value, last=revision))
            except nats.js.errors.KeyWrongLastSequenceError:
                return None


class PastBucket(_Bucket):
    """Blocks of past requests, which NATS keeps for an hour, within a bound. Both methods raise BucketUnavailable while
    NATS or its JetStream cannot be reached."""

    def __init__(self, bus: Bus, client: str) -> None:
        super().__init__(bus, PAST_BUCKET, StorageType.FILE, max_age_s=PAST_MAX_AGE_S, max_bytes=PAST_MAX_BYTES)
        self._client = client

    async def put(self, key: str, block: PastBlock) -> None:
        with self._reaching():
            await (await self._open()).put(key, encode(block))

    async def read(self, keys: Iterable[str]) -> list[PastBlock]:
        """Returns the blocks under these keys, with their ages of now by the server's clock alone. Keys without a
        value, and values that cannot be decoded, are left out."""
        found: list[PastBlock] = []
        with self._reaching():
            kv = await self._open()
            js = self._bus.client.jetstream(timeout=TIMEOUT_S)
            stream, prefix = f"KV_{PAST_BUCKET}", f"$KV.{PAST_BUCKET}."
            await kv.put(f"clock.{self._client}", b"")
            clock = await js.get_last_msg(stream, f"{prefix}clock.{self._client}")
            for key in keys:
                try:
                    stored = await js.get_last_msg(stream, f"{prefix}{key}")
                    block = decode(PastBlock, stored.data or b"")
                except nats.js.errors.NotFoundError:
                    continue
                except WireError as error:
                    log.warning("bucket_value_malformed", key=key, error=str(error))
                    continue
                if clock.time and stored.time:
                    since_s = max(0.0, (clock.time - stored.time).total_seconds())
                    found.append(replace(block, age_s=block.age_s + since_s))
        return found
