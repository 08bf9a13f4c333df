"""Which jobs with a budget are kept on time: Moore and Hodgson over whole jobs, by what is forecast of them.

The jobs of which a stage waits are taken by the latest instant at which that stage must start. What a job needs is the
work of its waiting stages and of all that follows. Room is kept for `crowd` times that work, because jobs whose stages
run, that wait for a tool, or are still to come need the engines too and are not in the queue; whenever the work before
a job leaves it none, the job with the most work left per value is given up. A job that is nearly done has little left
and is kept. All stages of a job share its fate, those that come later as well, until a later plan keeps it.

Many small jobs of one tenant would push out the few large ones of another. So the jobs of a tenant that is ahead of
others (`job_shares.py`) are given up before those of others.

Nothing is remembered from one plan to the next: forecasts change with every stage, and a job that had no room may have
it now.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from hmas.worker.agent.entry.entry import QueueEntry


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlanConfig:
    """`every_s`: seconds from one plan to the next. `crowd`: room that is kept for a job, in multiples of its work."""

    every_s: float = 0.25
    crowd: float = 2.6


class StagePlan(NamedTuple):
    """A waiting stage: its latest start, its own work, the work of all that follows it, the price of work, and whether
    its tenant is ahead of others."""

    entry: QueueEntry
    start_s: float
    work: float
    following_work: float
    price_factor: float
    yields: bool = False


class _Row(NamedTuple):
    start_s: float
    job: str
    work: float
    price: float
    yields: bool


def budgeted(entry: QueueEntry) -> bool:
    """Returns whether the request is a stage of a job with a budget."""
    return entry.request.job is not None and entry.request.job.left_s is not None


class JobPlan:
    """The waiting stages of jobs with a budget, and the jobs that the last plan gave up."""

    __slots__ = ("_config", "_given_up", "_planned_s", "_stages")

    def __init__(self, config: JobPlanConfig) -> None:
        self._config = config
        self._stages: dict[int, QueueEntry] = {}  # by seq
        self._given_up: set[str] = set()
        self._planned_s = -config.every_s

    def __len__(self) -> int:
        return len(self._stages)

    def __iter__(self) -> Iterator[QueueEntry]:
        return iter(self._stages.values())

    def add(self, entry: QueueEntry) -> None:
        self._stages[entry.seq] = entry

    def remove(self, entry: QueueEntry) -> None:
        self._stages.pop(entry.seq, None)

    def gives_up(self, entry: QueueEntry) -> bool:
        return entry.request.job is not None and entry.request.job.job in self._given_up

    def due(self, now_s: float) -> bool:
        return bool(self._stages) and now_s - self._planned_s >= self._config.every_s

    def plan(
        self, now_s: float, rate: float, stages: Iterable[StagePlan], others: Iterable[tuple[float, float]]
    ) -> None:
        """Decides anew. `rate`: work done per second; `others`: due time and work of requests without a job, which are
        served beside them."""
        self._planned_s = now_s
        self._given_up = set()
        kept, total, beside = list[tuple[bool, float, str, float]](), 0.0, 0.0
        waiting = sorted(others, reverse=True)
        for row in sorted(_rows(stages)):
            if row.start_s < now_s:
                self._given_up.add(row.job)
                continue
            while waiting and waiting[-1][0] <= row.start_s:
                beside += waiting.pop()[1]
            heappush(kept, (not row.yields, -row.price, row.job, row.work))
            total += row.work
            room = rate * (row.start_s - now_s) - beside
            while kept and self._config.crowd * (total - row.work) > room:
                *_, job, work = heappop(kept)
                total -= work
                self._given_up.add(job)
                if job == row.job:
                    break


def _rows(stages: Iterable[StagePlan]) -> Iterable[_Row]:
    """Returns the jobs of the waiting stages. What follows is counted once, as the last stage that came has it."""
    rows: dict[str, _Row] = {}
    last: dict[str, tuple[int, float]] = {}
    for entry, start_s, work, following_work, price_factor, yields in stages:
        facts = entry.request.job
        assert facts is not None
        row = rows.get(facts.job, _Row(start_s, facts.job, 0.0, 0.0, yields))
        number, followed = last.get(facts.job, (-1, 0.0))
        if facts.index > number:
            last[facts.job] = facts.index, following_work
            work += following_work - followed
        own = row.work + work
        rows[facts.job] = _Row(min(row.start_s, start_s), facts.job, own, own * price_factor, yields)
    return rows.values()
