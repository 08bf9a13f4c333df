"""Keeps the blocks of past requests over a restart, and answers those who ask for them."""

import time
from collections.abc import Callable

import structlog

from hmas.contracts.control_agents import PastRestored
from hmas.contracts.past import PastBlock, PastQuery, PastReply
from hmas.qos.agent import QosAgent
from hmas.runtime.bucket import BucketUnavailable, PastBucket
from hmas.runtime.introduction import Introduction
from hmas.runtime.keeper import Keeper
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.subjects import past_key

log = structlog.get_logger()
SLOTS = 192  # blocks of a pool that are kept, of up to 1024 requests or a minute each
MAX_REPLY_BYTES = 512 * 1024  # half of the largest message that a NATS server accepts by default


class PastStore:
    """Reads what was kept of a pool before its first heartbeat is posted. Blocks that wait to be written are in
    `keeper`."""

    def __init__(self, bucket: PastBucket, post: Callable[[object], None]) -> None:
        self._bucket = bucket
        self._post = post
        self.keeper = Keeper(bucket)
        self.introduction = Introduction(lambda heartbeat: heartbeat.pool, self._restore, post)

    async def _restore(self, pool: str) -> None:
        try:
            blocks = await self._bucket.read(past_key(pool, slot) for slot in range(SLOTS))
        except (TimeoutError, BucketUnavailable) as error:
            log.warning("past_requests_unread", pool=pool, error=str(error))
            return
        if blocks:
            self._post(PastRestored(pool, tuple(blocks)))


async def answer(agent: QosAgent, owner: str, data: bytes, clock: Callable[[], float] = time.monotonic) -> bytes | None:
    """Returns the reply to a `PastQuery`; None if this copy does not publish, or `data` is no such message."""
    try:
        query = decode(PastQuery, data)
    except WireError:
        return None
    if not agent.publishes:
        return None
    room, taken = MAX_REPLY_BYTES, list[PastBlock]()
    for block in agent.past(clock(), query.pool, query.last_s, query.first):
        room -= len(block.rows)
        if taken and room < 0:
            return encode(PastReply(owner, tuple(taken), block.number))
        taken.append(block)
    return encode(PastReply(owner, tuple(taken)))
