"""Jobs in deadline order, with prefix sums of their work: where does the first one become late, and what costs most
before it?"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf

from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.keyed_heap import Place

BLOCK = 128  # jobs a block is filled with; it is split at twice as many
ROUNDING = 1e-9  # of work


class Job:
    """`work` in engine seconds, done by `due_s`; `price` is work per unit of value, `place` its rank (key, seq)."""

    __slots__ = ("due_s", "entry", "place", "price", "work")

    def __init__(self, entry: QueueEntry, key: float, due_s: float, work: float, price: float) -> None:
        self.entry = entry
        self.place: Place = (key, entry.seq)
        self.due_s = due_s
        self.work = work
        self.price = price


class Block:
    """A run of jobs. Of its summary, `work` and `dearest` hold until the jobs change, `lateness` (the most by which
    work up to a job, from the block's start, exceeds rate * due_s) also only for one rate."""

    __slots__ = ("dearest", "jobs", "lateness", "places", "rate", "work")

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.places = [job.place for job in jobs]
        self.rate = -1.0  # none: the summary is stale
        self.work = 0.0
        self.lateness = -inf
        self.dearest: Job | None = None

    def review(self, rate: float) -> None:
        work, lateness, price, dearest = 0.0, -inf, -inf, None
        for job in self.jobs:
            work += job.work
            late = work - rate * job.due_s
            if late > lateness:
                lateness = late
            if job.price >= price:
                price, dearest = job.price, job
        self.rate, self.work, self.lateness, self.dearest = rate, work, lateness, dearest


class DeadlineOrder:
    """Jobs by `place`, in blocks with summaries (square-root decomposition): a change costs O(log n) and one block's
    summary, a question one look at each block. A new rate makes all summaries anew."""

    __slots__ = ("_blocks", "_firsts", "_jobs")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[Place] = []  # the first place of each block
        self._jobs: dict[int, Job] = {}  # by seq

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())

    def __contains__(self, entry: QueueEntry) -> bool:
        return entry.seq in self._jobs

    def first(self) -> Job | None:
        return self._blocks[0].jobs[0] if self._blocks else None

    def add(self, job: Job) -> None:
        self._jobs[job.entry.seq] = job
        if not self._blocks:
            self._append(Block([job]))
            return
        index = max(0, bisect_right(self._firsts, job.place) - 1)
        block = self._blocks[index]
        at = bisect_left(block.places, job.place)
        block.places.insert(at, job.place)
        block.jobs.insert(at, job)
        block.rate = -1.0
        self._firsts[index] = block.places[0]
        if len(block.jobs) >= 2 * BLOCK:
            rest = Block(block.jobs[BLOCK:])
            del block.jobs[BLOCK:], block.places[BLOCK:]
            self._blocks.insert(index + 1, rest)
            self._firsts.insert(index + 1, rest.places[0])

    def remove(self, entry: QueueEntry) -> Job:
        """The job of `entry`, which must be in."""
        job = self._jobs.pop(entry.seq)
        index = bisect_right(self._firsts, job.place) - 1
        block = self._blocks[index]
        at = bisect_left(block.places, job.place)
        del block.places[at], block.jobs[at]
        block.rate = -1.0
        if block.jobs:
            self._firsts[index] = block.places[0]
        else:
            del self._blocks[index], self._firsts[index]
        return job

    def refill(self, jobs: Iterable[Job]) -> None:
        """Hold exactly `jobs`; they come in arrival order, so that of equal keys the earlier stays first."""
        ordered = sorted(jobs, key=lambda job: job.place[0])
        self._jobs = {job.place[1]: job for job in ordered}
        self._blocks, self._firsts = [], []
        for begin in range(0, len(ordered), BLOCK):
            self._append(Block(ordered[begin : begin + BLOCK]))

    def sacrifice(self, now_s: float, rate: float) -> Job | None:
        """If work in this order, at `rate` from `now_s` on, leaves a job late: which one to give up, the job itself
        if it is late by now, else the dearest of those up to it (Moore 1968). None if all are done in time."""
        before, limit = 0.0, ROUNDING - rate * now_s
        dearest: Job | None = None
        for block in self._blocks:
            if block.rate != rate:
                block.review(rate)
            if before + block.lateness > limit:
                return _first_late(block, before=before, limit=limit, now_s=now_s, rate=rate, dearest=dearest)
            before += block.work
            dearest = _dearer(dearest, block.dearest)
        return None

    def give_up(self, now_s: float, rate: float, most: int) -> list[Job]:
        """Takes out all that the first `most` jobs have to give up, in one walk; for when that is much."""
        taken: list[tuple[float, int, Job]] = []  # dearest first, the later of equals
        given_up, before, limit = [], 0.0, ROUNDING - rate * now_s
        for number, job in enumerate(islice(chain.from_iterable(block.jobs for block in self._blocks), most)):
            if job.work > rate * (job.due_s - now_s):
                given_up.append(job)
                continue
            heappush(taken, (-job.price, -number, job))
            before += job.work
            while before - rate * job.due_s > limit:
                dearest = heappop(taken)[2]
                before -= dearest.work
                given_up.append(dearest)
        self._drop(given_up, most)
        return given_up

    def _drop(self, jobs: list[Job], most: int) -> None:
        """All of them are among the first `most`."""
        for job in jobs:
            del self._jobs[job.entry.seq]
        rest, index = 0, 0
        while index < len(self._blocks) and rest < most:
            rest += len(self._blocks[index].jobs)
            index += 1
        live = self._jobs
        kept = [job for block in self._blocks[:index] for job in block.jobs if job.entry.seq in live]
        blocks = [Block(kept[begin : begin + BLOCK]) for begin in range(0, len(kept), BLOCK)]
        self._blocks[:index] = blocks
        self._firsts[:index] = [block.places[0] for block in blocks]

    def _append(self, block: Block) -> None:
        self._blocks.append(block)
        self._firsts.append(block.places[0])


def _dearer(one: Job | None, other: Job | None) -> Job | None:
    """The later one of equals."""
    if one is None or other is None:
        return one or other
    return other if other.price >= one.price else one


def _first_late(
    block: Block, *, before: float, limit: float, now_s: float, rate: float, dearest: Job | None
) -> Job | None:
    for job in block.jobs:
        before += job.work
        dearest = _dearer(dearest, job)
        if before - rate * job.due_s > limit:
            return job if job.work > rate * (job.due_s - now_s) else dearest
    return dearest  # the block's sum and this one may differ by rounding
