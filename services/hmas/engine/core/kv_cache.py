"""Paged KV memory with a prefix cache, in vLLM's manner, at a cost that does not grow with the number of blocks.

Blocks are counted, not numbered. vLLM's queue of free blocks, least recently freed first, is kept as runs: a run of
blocks with nothing in them, a cached block found by its hash, or the cached blocks of a preempted sequence, which that
sequence alone can take up again. A block keeps its content until it is taken for something else.
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
    """Blocks of a sequence found in the cache, in prompt order: shared by hash, then its own from before preemption.

    `free` of them lie in the free queue, so that taking them up uses free blocks.
    """

    shared: int = 0
    own: int = 0
    free: int = 0

    @property
    def blocks(self) -> int:
        return self.shared + self.own


NO_MATCH = PrefixMatch()


class KvCache:
    """`free` counts the blocks that can be taken, those with reusable content included."""

    def __init__(self, num_blocks: int, block_size: int, prefix_caching: bool) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.free = num_blocks
        self._caching = prefix_caching
        first = _Run(num_blocks)
        self._queue: OrderedDict[int | _Run, None] = OrderedDict({first: None})  # free blocks, next to be taken first
        self._refs: dict[int, int] = {}  # cached hash -> sequences that hold it; 0 while in the free queue
        self._own: dict[str, _Run] = {}

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def match(self, seq: Sequence) -> PrefixMatch:
        """The longest cached prefix; at least one token is left to compute, as in vLLM."""
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
        """Gives the sequence the blocks of its match; `match` must be fresh."""
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
        """Takes blocks for new content, the longest free first; `count` must not exceed `free`."""
        self.free -= count
        while count:
            entry = next(iter(self._queue))
            if not isinstance(entry, _Run):
                del self._refs[entry]
                count -= 1
            elif entry.count > count:
                entry.count -= count
                return
            else:
                count -= entry.count
                if entry.owner is not None:
                    del self._own[entry.owner]
            del self._queue[entry]

    def enter(self, seq: Sequence) -> None:
        """Makes the prompt blocks that the sequence's context now fills available to others.

        A block whose hash is already cached stays the sequence's private copy, as in vLLM.
        """
        if not self._caching:
            return
        hashes = seq.request.prefix_hashes
        full = min(len(hashes), seq.context // self.block_size)
        for h in hashes[seq.hashed : full]:
            if h not in self._refs:
                self._refs[h] = 1
                seq.shared.append(h)
        seq.hashed = max(seq.hashed, full)

    def release(self, seq: Sequence, *, keep: bool) -> None:
        """Frees the blocks of a sequence, last block first. `keep`: it will come back for them (preemption)."""
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
        """A preempted sequence will not come back: its kept blocks are worth nothing any more."""
        run = self._own.pop(seq.id, None)
        if run is not None:
            run.owner = None

    def check(self) -> None:
        """Asserts that the free queue and the counters agree."""
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
