"""Jobs in deadline order with prefix sums of their work.

It finds the first job that would be late, and the job up to it that takes the most work per unit of value; and of the
jobs that could go first without making another late, the one with the least work.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from copy import deepcopy
from heapq import heappop, heappush
from itertools import chain, islice
from math import inf

from hmas.worker.agent.entry import QueueEntry
from hmas.worker.agent.keyed_heap import Place

BLOCK = 64  # jobs in a new block; a block is split when it has twice as many
ROUNDING = 1e-9  # engine seconds by which sums of work may differ through rounding


class Job:
    """The work of one queued request as the planner sees it.

    `work` is in engine seconds and must be done by the instant `due_s`; `price` is work per unit of value, so the job
    with the highest price is given up first; `place` is its rank in the order, (key, seq). `passing` is the slack that
    it needs to go before others: its work, or infinite for one that may not.
    """

    __slots__ = ("due_s", "entry", "passing", "place", "price", "work")

    def __init__(
        self, entry: QueueEntry, key: float, due_s: float, work: float, price: float, *, passes: bool = True
    ) -> None:
        self.passing = work if passes else inf
        self.entry = entry
        self.place: Place = (key, entry.seq)
        self.due_s = due_s
        self.work = work
        self.price = price

    def __deepcopy__(self, memo: dict[int, object]) -> "Job":
        twin = memo[id(self)] = object.__new__(Job)
        twin.entry = deepcopy(self.entry, memo)
        twin.passing, twin.place, twin.due_s = self.passing, self.place, self.due_s
        twin.work, twin.price = self.work, self.price
        return twin


class Block:
    """Consecutive jobs of the order, with a summary of them.

    The summary is: `work`, their sum; `dearest`, the job with the highest price; `shortest`, the first job with the
    least work; and `lateness`, the most by which the work from the block's start up to a job exceeds rate * due_s.
    `lateness` holds for one `rate` only; -1 marks a summary that is out of date.
    """

    __slots__ = ("dearest", "jobs", "lateness", "places", "rate", "shortest", "work")

    def __init__(self, jobs: list[Job]) -> None:
        self.jobs = jobs
        self.places = [job.place for job in jobs]
        self.rate = -1.0  # the summary is out of date
        self.work = 0.0
        self.lateness = -inf
        self.dearest: Job | None = None
        self.shortest = jobs[0]

    def review(self, rate: float) -> None:
        work, lateness, price, dearest, least, shortest = 0.0, -inf, -inf, None, inf, self.jobs[0]
        for job in self.jobs:
            own = job.work
            work += own
            late = work - rate * job.due_s
            if late > lateness:
                lateness = late
            if job.price >= price:
                price, dearest = job.price, job
            if job.passing < least:
                least, shortest = job.passing, job
        self.rate, self.work, self.lateness, self.dearest, self.shortest = rate, work, lateness, dearest, shortest


class DeadlineOrder:
    """Jobs sorted by `place`, in blocks with summaries (square-root decomposition).

    Adding or removing a job costs O(log n) and makes one block's summary out of date. A question costs a look at each
    block, and makes the summaries anew that are out of date; with a new rate that is all of them.
    """

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
        """Takes out the job of `entry` and returns it. Raises KeyError if there is none."""
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
        """Replaces all jobs by `jobs`, given in arrival order, so that of equal keys the earlier one stays first."""
        ordered = sorted(jobs, key=lambda job: job.place[0])
        self._jobs = {job.place[1]: job for job in ordered}
        self._blocks, self._firsts = [], []
        for begin in range(0, len(ordered), BLOCK):
            self._append(Block(ordered[begin : begin + BLOCK]))

    def sacrifice(self, now_s: float, rate: float) -> Job | None:
        """Returns the job to give up so that more of the others are on time, or None if all will be on time.

        The jobs are worked off in this order from `now_s` on, at `rate` engine seconds of work per second. If one is
        late then, the job to give up is that job itself if it would be late even alone, otherwise the one with the
        highest price among the jobs up to it (Moore 1968). The job stays in the order.
        """
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

    def quickest(self, now_s: float, rate: float, share: float, most: int) -> Job | None:
        """Returns the job to serve next so that the least work is done before a first token comes; None without jobs.

        It is the job with the least work of those in the first `most` blocks that need at most `share` (0 to 1) of the
        slack of every job before them, and the first of equals. The slack of a job is the work that can be done besides
        before it is late, if the jobs are worked off in this order from `now_s` on, at `rate`. So no job that is on
        time by that plan is late by it afterwards; with the share 0 it is the first job.
        """
        if not self._blocks:
            return None
        best, before, spare, passed = self._blocks[0].jobs[0], 0.0, inf, rate * now_s
        for block in islice(self._blocks, most):
            if block.rate != rate:
                block.review(rate)
            rest = min(spare, share * (-before - block.lateness - passed))
            shortest = block.shortest
            if shortest.passing < best.work:
                if shortest.passing <= rest:
                    best = shortest
                elif shortest.passing <= spare:
                    best = _quickest(block, best, before=before, spare=spare, passed=passed, rate=rate, share=share)
            if rest <= 0.0:
                break
            before += block.work
            spare = rest
        return best

    def give_up(self, now_s: float, rate: float, most: int) -> list[Job]:
        """Takes out and returns the jobs to give up so that the rest of the first `most` jobs is on time.

        It does the same as repeated calls of `sacrifice`, but in one pass, which is cheaper when there are many.
        """
        taken: list[tuple[float, int, Job]] = []  # a heap: highest price first, of equal prices the later job
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
        """Removes `jobs`, all of which are among the first `most`."""
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
    """Returns the job with the higher price, `other` if they are equal; None only if both are None."""
    if one is None or other is None:
        return one or other
    return other if other.price >= one.price else one


def _quickest(block: Block, best: Job, *, before: float, spare: float, passed: float, rate: float, share: float) -> Job:
    """Returns the job with the least work, of `best` and those jobs of the block that may go before all that precede
    them; `spare` is the work that those before the block leave."""
    for job in block.jobs:
        if job.passing < best.work and job.passing <= spare:
            best = job
        before += job.work
        spare = min(spare, share * (rate * job.due_s - before - passed))
        if spare <= 0.0:
            break
    return best


def _first_late(
    block: Block, *, before: float, limit: float, now_s: float, rate: float, dearest: Job | None
) -> Job | None:
    for job in block.jobs:
        before += job.work
        dearest = _dearer(dearest, job)
        if before - rate * job.due_s > limit:
            return job if job.work > rate * (job.due_s - now_s) else dearest
    return dearest  # reached only if the block's sum and this one differ by rounding
