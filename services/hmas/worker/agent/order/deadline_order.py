"""Jobs in deadline order with prefix sums of their work.

It finds the first job that would be late, and the job up to it that takes the most work per unit of value; and of the
jobs that could go first without making another late, the one with the least work.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from math import inf

from hmas.laws.moore_hodgson import ROUNDING, to_give_up
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.order.keyed_heap import Rank
from hmas.worker.agent.order.planned_work import PlannedWork

BLOCK = 64  # jobs in a new block; a block is split when it has twice as many


class Block:
    """Consecutive jobs of the order, with a summary of them.

    The summary is: `work`, their sum; `highest_priced`, the job with the highest price; `shortest`, the first job with
    the least work; and `lateness`, the most by which the work from the block's start up to a job exceeds rate * due_s.
    `lateness` holds for one `rate` only; -1 marks a summary that is out of date.
    """

    __slots__ = ("highest_priced", "jobs", "lateness", "ranks", "rate", "shortest", "work")

    def __init__(self, jobs: list[PlannedWork]) -> None:
        self.jobs = jobs
        self.ranks = [job.rank for job in jobs]
        self.rate = -1.0  # the summary is out of date
        self.work = 0.0
        self.lateness = -inf
        self.highest_priced: PlannedWork | None = None
        self.shortest = jobs[0]

    def review(self, rate: float) -> None:
        work, lateness, price, highest_priced, least, shortest = 0.0, -inf, -inf, None, inf, self.jobs[0]
        for job in self.jobs:
            own = job.work
            work += own
            late = work - rate * job.due_s
            if late > lateness:
                lateness = late
            if job.price >= price:
                price, highest_priced = job.price, job
            if job.passing < least:
                least, shortest = job.passing, job
        self.rate, self.work, self.lateness, self.highest_priced, self.shortest = (
            rate,
            work,
            lateness,
            highest_priced,
            shortest,
        )


class DeadlineOrder:
    """Jobs sorted by `rank`, in blocks with summaries (square-root decomposition).

    Adding or removing a job costs O(log n) and makes one block's summary out of date. A question costs a look at each
    block, and makes the summaries anew that are out of date; with a new rate that is all of them.
    """

    __slots__ = ("_blocks", "_firsts", "_jobs")

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._firsts: list[Rank] = []  # the first rank of each block
        self._jobs: dict[int, PlannedWork] = {}  # by seq

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PlannedWork]:
        return iter(self._jobs.values())

    def __contains__(self, entry: QueueEntry) -> bool:
        return entry.seq in self._jobs

    def first(self) -> PlannedWork | None:
        return self._blocks[0].jobs[0] if self._blocks else None

    def add(self, job: PlannedWork) -> None:
        self._jobs[job.entry.seq] = job
        if not self._blocks:
            self._append(Block([job]))
            return
        index = max(0, bisect_right(self._firsts, job.rank) - 1)
        block = self._blocks[index]
        at = bisect_left(block.ranks, job.rank)
        block.ranks.insert(at, job.rank)
        block.jobs.insert(at, job)
        block.rate = -1.0
        self._firsts[index] = block.ranks[0]
        if len(block.jobs) >= 2 * BLOCK:
            rest = Block(block.jobs[BLOCK:])
            del block.jobs[BLOCK:], block.ranks[BLOCK:]
            self._blocks.insert(index + 1, rest)
            self._firsts.insert(index + 1, rest.ranks[0])

    def remove(self, entry: QueueEntry) -> PlannedWork:
        """Takes out the job of `entry` and returns it. Raises KeyError if there is none."""
        job = self._jobs.pop(entry.seq)
        index = bisect_right(self._firsts, job.rank) - 1
        block = self._blocks[index]
        at = bisect_left(block.ranks, job.rank)
        del block.ranks[at], block.jobs[at]
        block.rate = -1.0
        if block.jobs:
            self._firsts[index] = block.ranks[0]
        else:
            del self._blocks[index], self._firsts[index]
        return job

    def refill(self, jobs: Iterable[PlannedWork]) -> None:
        """Replaces all jobs by `jobs`, given in arrival order, so that of equal keys the earlier one stays first."""
        ordered = sorted(jobs, key=lambda job: job.rank[0])
        self._jobs = {job.rank[1]: job for job in ordered}
        self._blocks, self._firsts = [], []
        for begin in range(0, len(ordered), BLOCK):
            self._append(Block(ordered[begin : begin + BLOCK]))

    def sacrifice(self, now_s: float, rate: float) -> PlannedWork | None:
        """Returns the job to give up so that more of the others are on time, or None if all will be on time.

        The jobs are worked off in this order from `now_s` on, at `rate` engine seconds of work per second. If one is
        late then, the job to give up is that job itself if it would be late even alone, otherwise the one with the
        highest price among the jobs up to it (Moore 1968). The job stays in the order.
        """
        before, limit = 0.0, ROUNDING - rate * now_s
        highest_priced: PlannedWork | None = None
        for block in self._blocks:
            if block.rate != rate:
                block.review(rate)
            if before + block.lateness > limit:
                return _first_late(
                    block, before=before, limit=limit, now_s=now_s, rate=rate, highest_priced=highest_priced
                )
            before += block.work
            highest_priced = _higher_priced(highest_priced, block.highest_priced)
        return None

    def quickest(self, now_s: float, rate: float, share: float, most: int) -> PlannedWork | None:
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

    def give_up(self, now_s: float, rate: float, most: int) -> list[PlannedWork]:
        """Takes out and returns the jobs to give up so that the rest of the first `most` jobs is on time.

        It does the same as repeated calls of `sacrifice`, but in one pass, which is cheaper when there are many.
        """
        first = islice(chain.from_iterable(block.jobs for block in self._blocks), most)
        given_up = to_give_up(first, now_s, rate)
        self._drop(given_up, most)
        return given_up

    def _drop(self, jobs: list[PlannedWork], most: int) -> None:
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
        self._firsts[:index] = [block.ranks[0] for block in blocks]

    def _append(self, block: Block) -> None:
        self._blocks.append(block)
        self._firsts.append(block.ranks[0])


def _higher_priced(one: PlannedWork | None, other: PlannedWork | None) -> PlannedWork | None:
    """Returns the job with the higher price, `other` if they are equal; None only if both are None."""
    if one is None or other is None:
        return one or other
    return other if other.price >= one.price else one


def _quickest(
    block: Block, best: PlannedWork, *, before: float, spare: float, passed: float, rate: float, share: float
) -> PlannedWork:
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
    block: Block, *, before: float, limit: float, now_s: float, rate: float, highest_priced: PlannedWork | None
) -> PlannedWork | None:
    for job in block.jobs:
        before += job.work
        highest_priced = _higher_priced(highest_priced, job)
        if before - rate * job.due_s > limit:
            return job if job.work > rate * (job.due_s - now_s) else highest_priced
    return highest_priced  # reached only if the block's sum and this one differ by rounding
