"""Which jobs to give up so that the most of the others are on time (Moore and Hodgson), with the proof that it is so.

n jobs of known work p_j, all released, wait for one sequential server of rate 1 and have due dates d_j; as many as
possible are to be on time (1 || sum U_j). Moore (1968): take the jobs by due date; when the one just taken is late,
give up the longest taken so far. Proof. If a set of jobs can be done in time at all, it can be done in order of due
date: exchange two neighbours that are out of order, and the one due first ends sooner, while the other ends when the
first one did, which is before its own due date. Let S_k be the jobs kept of the first k, and S(j) the j shortest jobs
of a set S. Claim: S_k is in time; no set in time of the first k has more jobs; and none of j <= |S_k| jobs has less
work than S_k(j). This is trivial for k = 0; let it hold for k-1.
- In time. If k is late after S_{k-1}, only k is. Without the longest, m, the jobs before m end as they did and those
  after it sooner by p_m >= p_k, so k ends no later than the job before it did, which was in time and is due no later.
- Work. Let S be in time with j <= |S_k| jobs. Without k in it, S has at least the work of S_{k-1}(j); with k, S - k has
  at least that of S_{k-1}(j-1), and S that plus p_k. Neither is less than the work of (S_{k-1} + k)(j), and giving up
  the longest of more than j jobs does not change which j are the shortest: that set is S_k(j).
- Number. Let S be in time with |S_k| + 1 jobs. If nothing was given up, S without k has more jobs than S_{k-1}. If one
  was, S has |S_{k-1}| + 1 jobs, so k is one of them, and the others have at least the work of S_{k-1}: k, the last of
  them due, ends no sooner than after S_{k-1}, late. Neither can be.  QED

Here a job has a price beside its work, and the one with the highest price is given up; a job that would be late even
alone is given up at once. Where all prices are the works, this is the classic case.
"""

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Protocol, TypeVar

ROUNDING = 1e-9  # work by which sums may differ through rounding


class DueWork(Protocol):
    """A job: `work`, in any unit, is due at `due_s`. `price` is work per unit of value: the job with the highest price
    is given up first."""

    @property
    def due_s(self) -> float: ...

    @property
    def work(self) -> float: ...

    @property
    def price(self) -> float: ...


Job = TypeVar("Job", bound=DueWork)


def to_give_up(jobs: Iterable[Job], now_s: float, rate: float) -> list[Job]:
    """Returns those of `jobs`, which are in the order of their due times, to give up so that the others are on time.

    They are worked off from `now_s` on, at a `rate` of work per second. O(n log n).
    """
    taken: list[tuple[float, int, Job]] = []  # a heap: highest price first, of equal prices the later job
    given_up, before, limit = list[Job](), 0.0, ROUNDING - rate * now_s
    for number, job in enumerate(jobs):
        if job.work > rate * (job.due_s - now_s):
            given_up.append(job)
            continue
        heappush(taken, (-job.price, -number, job))
        before += job.work
        while before - rate * job.due_s > limit:
            highest_priced = heappop(taken)[2]
            before -= highest_priced.work
            given_up.append(highest_priced)
    return given_up
