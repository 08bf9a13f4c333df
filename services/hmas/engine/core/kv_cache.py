"""Paged KV memory with a prefix cache as in vLLM, at a cost that does not grow with the number of blocks.

Blocks are counted, not numbered. vLLM's queue of free blocks, least recently freed first, is kept as entries of three
kinds: a run of empty blocks, one cached block found by its hash, or the cached blocks of a preempted sequence, which
only that sequence can reuse. A free block keeps its content until it is taken for new content.
"""

from collections import OrderedDict
from dataclasses import dataclass

from hmas.engine.core.sequence import Sequence


@dataclass(slots=True, eq=False)
class _Run:
    """`count` adjacent free blocks; `owner` is the preempted sequence whose tokens they still hold, if any."""

    count: int
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class PrefixMatch:
    """How many leading blocks of a sequence are cached: `shared` by hash, then its `own` from before a preemption.

    `free` of them are in the free queue, so that reusing them reduces the number of free blocks.
    """

    shared: int = 0
    own: int = 0
    free: int = 0

    @property
    def blocks(self) -> int:
        return self.shared + self.own


NO_MATCH = PrefixMatch()
CacheEvent = tuple[str, list[int]]  # stored, removed or cleared; the hashes of the blocks


class KvCache:
    """The KV memory of one engine. `free` counts the blocks that can be taken, including those with cached content."""

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free = num_blocks
        self._caching = prefix_caching
        first = _Run(num_blocks)
        # The free blocks; the next to be taken stands first.
        self._queue: OrderedDict[int | _Run, None] = OrderedDict({first: None})
        self._refs: dict[int, int] = {}  # cached hash -> sequences that hold it; 0 while in the free queue
        self._own: dict[str, _Run] = {}
        self.journal: list[CacheEvent] | None = None  # what happened to cached blocks, if somebody reads and empties it

    def _note(self, kind: str, block: int) -> None:
        if self.journal is not None:
            self.journal.append((kind, [block]))

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def match(self, seq: Sequence) -> PrefixMatch:
        """Returns a sequence's longest cached prefix, which leaves at least one token to compute, as in vLLM."""
        if not self._caching:
            return NO_MATCH
        limit = (seq.target - 1) // self.block_size
        hashes = seq.request.prefix_hashes[:limit]
        shared = free = 0
        for h in hashes:
            refs = self._refs.get(h)
            if refs is None:
                break
            shared += 1
            free += refs == 0
        own = 0
        if shared == len(hashes) and seq.id in self._own:
            own = min(self._own[seq.id].count, limit - shared)
        return PrefixMatch(shared, own, free + own)

    def take_up(self, seq: Sequence, match: PrefixMatch) -> None:
        """Gives the sequence its cached blocks; nothing may have been taken or freed since `match` was computed."""
        for h in seq.request.prefix_hashes[: match.shared]:
            if self._refs[h] == 0:
                del self._queue[h]
            self._refs[h] += 1
        seq.shared = list(seq.request.prefix_hashes[: match.shared])
        seq.hashed = match.shared
        run = self._own.pop(seq.id, None)
        if run is not None:
            run.owner = None
            run.count -= match.own
            if run.count == 0:
                del self._queue[run]
        self.free -= match.free

    def take(self, count: int) -> None:
        """Takes `count` blocks for new content, those free longest first; `count` must not exceed `free`."""
        self.free -= count
        while count:
            entry = next(iter(self._queue))
            if not isinstance(entry, _Run):
                del self._refs[entry]
                self._note("removed", entry)
                count -= 1
            elif entry.count > count:
                entry.count -= count
                return
            else:
                count -= entry.count
                if entry.owner is not None:
                    del self._own[entry.owner]
            del self._queue[entry]

    def enter(self, seq: Sequence, *, answered: bool = False) -> None:
        """Enters the prompt blocks that the sequence has now filled into the prefix cache, for others to share; with
        `answered` those of its answer, too.

        A block whose hash is already cached stays the sequence's private copy, as in vLLM.
        """
        if not self._caching:
            return
        hashes = seq.request.prefix_hashes
        if answered:
            hashes += seq.request.answer_hashes
        full = min(len(hashes), seq.context // self.block_size)
        for h in hashes[seq.hashed : full]:
            if h not in self._refs:
                self._refs[h] = 1
                self._note("stored", h)
                seq.shared.append(h)
        seq.hashed = max(seq.hashed, full)

    def release(self, seq: Sequence, *, keep: bool) -> None:
        """Frees the blocks of a sequence, last block first.

        `keep` is for a preempted sequence: its blocks stay marked as its own, so that it can reuse them.
        """
        blocks = self.blocks_of(seq.context)
        own = 0
        if self._caching and keep:
            own = max(0, seq.context // self.block_size - len(seq.request.prefix_hashes))
        self._append_empty(blocks - own - len(seq.shared))
        if own:
            run = self._own[seq.id] = _Run(own, seq.id)
            self._queue[run] = None
        freed = blocks - len(seq.shared)
        for h in reversed(seq.shared):
            self._refs[h] -= 1
            if self._refs[h] == 0:
                self._queue[h] = None
                freed += 1
        self.free += freed
        seq.shared = []
        seq.hashed = 0

    def forget(self, seq: Sequence) -> None:
        """Gives up the blocks that `release(keep=True)` kept for a preempted sequence, because it will not resume."""
        run = self._own.pop(seq.id, None)
        if run is not None:
            run.owner = None

    def disown(self) -> None:
        """Gives up the blocks that preempted sequences would find again."""
        for run in self._own.values():
            run.owner = None
        self._own.clear()

    def reset(self) -> bool:
        """Drops all that is cached, unless a sequence runs or may resume; returns whether it did, as vLLM does."""
        if self.free < self.num_blocks or self._own:
            return False
        self._refs.clear()
        self._queue = OrderedDict({_Run(self.num_blocks): None})
        if self.journal is not None:
            self.journal.append(("cleared", []))
        return True

    def check(self) -> None:
        """Asserts that the free queue and the counters agree (for tests)."""
        runs = [entry for entry in self._queue if isinstance(entry, _Run)]
        hashes = [entry for entry in self._queue if not isinstance(entry, _Run)]
        assert self.free == sum(run.count for run in runs) + len(hashes)
        assert 0 <= self.free <= self.num_blocks
        assert all(run.count > 0 for run in runs)
        assert all(self._refs[h] == 0 for h in hashes)
        assert sum(refs == 0 for refs in self._refs.values()) == len(hashes)
        assert {run.owner for run in runs if run.owner is not None} == set(self._own)

    def _append_empty(self, count: int) -> None:
        if count == 0:
            return
        last = next(reversed(self._queue), None)
        if isinstance(last, _Run) and last.owner is None:
            last.count += count
        else:
            self._queue[_Run(count)] = None
