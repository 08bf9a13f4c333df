"""KV that engines hand over: prompts that one has computed and keeps for another, and prompts that another reads."""

from hmas.engine.core.kv_cache import KvCache
from hmas.engine.core.sequence import Sequence, State
from hmas.engine.core.waiting import WaitingQueue


class HandedKv:
    """The sequences of one engine whose KV is on its way, here or to another engine.

    `to_read` are those whose memory was taken since the driver last looked, with the tokens that must be read: the
    driver empties it, and says when one has landed.
    """

    def __init__(self, kv: KvCache, waiting: WaitingQueue) -> None:
        self.to_read: dict[str, int] = {}
        self.reading: dict[str, Sequence] = {}
        self.lent: dict[str, Sequence] = {}
        self._kv, self._waiting = kv, waiting
        self._due: dict[str, int] = {}  # blocks that those which read, or have read, need for their last prompt token

    @property
    def idle(self) -> bool:
        """Whether no memory is held for KV on its way."""
        return not (self._due or self.lent)

    @property
    def due_blocks(self) -> int:
        """Blocks that must stay free for the last prompt tokens of those whose other memory is taken."""
        return sum(self._due.values())

    def begin(self, seq: Sequence) -> None:
        """Takes the memory of a sequence's prompt without the last token, which is always computed here."""
        match = self._kv.match(seq)
        held, tokens = match.blocks * self._kv.block_size, seq.target - 1
        self._kv.take_up(seq, match)
        self._kv.take(self._kv.blocks_of(tokens) - match.blocks)
        seq.context, seq.cached, seq.state, seq.read = tokens, held, State.READING, True
        self.reading[seq.id] = seq
        self._due[seq.id] = self._kv.blocks_of(seq.target) - self._kv.blocks_of(tokens)
        self.to_read[seq.id] = tokens - held

    def landed(self, request_id: str) -> None:
        """Lets a sequence whose KV has come wait for its place in a step, before all others. Raises KeyError if it does
        not read."""
        seq = self.reading.pop(request_id)
        self.to_read.pop(request_id, None)
        self._kv.enter(seq)
        self._waiting.push_back_in(seq)

    def admitted(self, seq: Sequence) -> None:
        """Records that a sequence whose KV has come has its place in a step."""
        del self._due[seq.id]

    def drop(self, seq: Sequence) -> None:
        """Ends a sequence that reads, or has read and waits, and frees its memory."""
        if self.reading.pop(seq.id, None) is None:
            self._waiting.remove(seq)
        self.to_read.pop(seq.id, None)
        del self._due[seq.id]
        self._kv.release(seq, keep=False)

    def lend(self, seq: Sequence) -> None:
        """Keeps the memory of a sequence that has ended."""
        self.lent[seq.id] = seq

    def give_back(self, request_id: str) -> bool:
        """Frees what is lent under that id; returns whether there was anything."""
        seq = self.lent.pop(request_id, None)
        if seq is not None:
            self._kv.release(seq, keep=False)
        return seq is not None
