"""Counts the blocks in an engine's KV cache by the batches of events that it publishes, which are MessagePack."""

from math import inf
from typing import Annotated

import msgspec
from msgspec.msgpack import Decoder

from hmas.contracts.worker import KvCacheCounted

MAX_EVENTS = 16_384  # of a batch
MAX_HASHES = 65_536  # of an event
MAX_FIELDS = 16  # of a batch or an event that is an array; vLLM writes at most ten
ON_DEVICE = (None, "GPU")  # where blocks are that a prompt finds; copies elsewhere are not counted
_MEDIUM_AT = {"BlockStored": 6, "BlockRemoved": 2}  # in an event that is an array


class BlockCount:
    """The blocks in a cache, by the batches of its events in their order; `blocks` is None while it is unknown.
    `stored`, `removed`, `cleared`: what came since they were last taken. `next`: the number of the next batch."""

    def __init__(self) -> None:
        self.blocks: int | None = None
        self.stored = self.removed = 0
        self.cleared = False
        self.next = 0
        self._at = -inf  # the engine's time of the last batch
        self.whole = True  # nothing can have been missed since that

    def misses(self, number: int) -> bool:
        """Returns whether batches between the last one and this one did not come."""
        return number > self.next

    def count(self, number: int, batch: "KvBatch") -> None:
        """Counts a batch; one that was counted already is left out."""
        at, events = batch
        if number < self.next and at <= self._at:
            return
        if number != self.next:  # batches are missing, or the engine has started anew
            self._clear(0 if number == 0 else None)
        elif number == 0:
            self.blocks = 0
        self.next, self._at, self.whole = number + 1, at, True
        for event in events:
            blocks = len(event.block_hashes) if event.medium in ON_DEVICE else 0
            if event.type == "AllBlocksCleared":
                self._clear(0)
            elif event.type == "BlockStored":
                self.stored += blocks
                self.blocks = None if self.blocks is None else self.blocks + blocks
            elif event.type == "BlockRemoved":
                self.removed += blocks
                self.blocks = None if self.blocks is None else max(0, self.blocks - blocks)

    def take(self, engine: str) -> KvCacheCounted:
        """Returns what is to be reported now."""
        blocks = self.blocks if self.whole else None
        report = KvCacheCounted(
            engine=engine, blocks=blocks, stored=self.stored, removed=self.removed, cleared=self.cleared
        )
        self.stored, self.removed, self.cleared = 0, 0, False
        return report

    def replayed(self) -> None:
        """Records that all came that the engine has kept; where that is nothing, it has stored nothing yet."""
        self.whole = True
        if not self.next:
            self.blocks = 0

    def lose(self) -> None:
        """Records that batches may be missed from now on; the next one tells whether any were."""
        self.whole = False

    def _clear(self, blocks: int | None) -> None:
        self.blocks, self.stored, self.removed, self.cleared = blocks, 0, 0, True


# --- what engines write: batches and events as maps or as arrays, depending on the engine and its version -------------


_Hashes = Annotated[list[int | bytes], msgspec.Meta(max_length=MAX_HASHES)]
_Fields = Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_FIELDS)]


class _Event(msgspec.Struct, gc=False):
    type: str
    block_hashes: _Hashes = []
    medium: str | None = None


_Events = Annotated[list[_Event | _Fields], msgspec.Meta(max_length=MAX_EVENTS)]
KvBatch = tuple[float, list[_Event]]  # the engine's time, and what happened to its cache


class _Batch(msgspec.Struct, gc=False):
    ts: float
    events: _Events


# Of maps only these fields are read, of arrays only the items asked for: no tokens. A length is looked at before what
# it is the length of.
_BATCH: Decoder[_Batch | _Fields] = Decoder(_Batch | _Fields)
_EVENTS: Decoder[_Events] = Decoder(_Events)
_TIME, _TYPE = Decoder(float), Decoder(str)
_HASHES: Decoder[_Hashes] = Decoder(_Hashes)
_MEDIUM: Decoder[str | None] = Decoder(str | None)


def read_batch(payload: bytes) -> KvBatch:
    """Returns the batch in a message's payload. Raises ValueError if it is none, or has more than the bounds allow."""
    try:
        batch = _BATCH.decode(payload)
        if isinstance(batch, list):
            batch = _Batch(_TIME.decode(batch[0]), _EVENTS.decode(batch[1]))
        return batch.ts, [event if isinstance(event, _Event) else _of_array(event) for event in batch.events]
    except (msgspec.MsgspecError, ValueError, IndexError, RecursionError) as error:
        raise ValueError(f"no batch of KV events: {error}") from error


def _of_array(event: list[msgspec.Raw]) -> _Event:
    kind = _TYPE.decode(event[0])
    place = _MEDIUM_AT.get(kind)
    if place is None:
        return _Event(kind)
    return _Event(kind, _HASHES.decode(event[1]), _MEDIUM.decode(event[place]) if place < len(event) else None)
