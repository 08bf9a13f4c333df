"""Asks QoS for a pool's past requests."""

from dataclasses import replace

import nats.errors

from hmas.contracts.past import PastBlock, PastQuery, PastReply
from hmas.laws.request_rows import RequestRow, RowError, unpack
from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode, encode
from hmas.wire.subjects import QUERY_PAST

TIMEOUT_S = 5.0
MAX_BLOCKS = 4096


class PastUnavailable(Exception):
    """The past requests cannot be had. The message says why."""


async def past_blocks(bus: Bus, pool: str, last_s: float) -> list[PastBlock]:
    """Returns the blocks of the pool's requests that ended in the last seconds, or have not, over a bus that is
    connected. Raises PastUnavailable."""
    blocks: list[PastBlock] = []
    owner, first = "", 0
    while True:
        reply = await _ask(bus, PastQuery(pool, last_s, first))
        if owner not in ("", reply.owner):
            raise PastUnavailable("another copy of qos has taken over meanwhile: ask again")
        blocks += reply.blocks
        if reply.following is None or reply.following <= first or len(blocks) > MAX_BLOCKS:
            return blocks
        owner, first = reply.owner, reply.following


async def _ask(bus: Bus, query: PastQuery) -> PastReply:
    try:
        message = await bus.client.request(QUERY_PAST, encode(query), timeout=TIMEOUT_S)
        return decode(PastReply, message.data)
    except (TimeoutError, nats.errors.Error) as error:
        raise PastUnavailable(f"no copy of qos tells its past requests ({type(error).__name__}): is it up?") from None
    except WireError as error:
        raise PastUnavailable(f"the answer of qos cannot be read: {error}") from None


def rows_of(blocks: list[PastBlock]) -> list[RequestRow]:
    """Returns the rows in order of arrival, with `arrival_s` below 0 because it counts from now. Raises
    PastUnavailable for a block that cannot be read."""
    try:
        rows = [
            replace(row, arrival_s=row.arrival_s - block.age_s) for block in blocks for row in unpack(block.rows)
        ]  # fmt: skip
    except RowError as error:
        raise PastUnavailable(str(error)) from None
    return sorted(rows, key=lambda row: row.arrival_s)
