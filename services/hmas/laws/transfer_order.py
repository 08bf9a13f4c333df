"""The order in which transfers of KV pass a port.

Each order is a function that gives every transfer that waits a key. The one with the least key goes first, and those
with equal keys share. Keys hold for the instant at which they are made: where an order looks at the clock or at all
that waits (`edf_late`, `max_on_time`), they are to be made anew whenever one comes, ends or becomes late.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import Protocol

from hmas.laws.moore_hodgson import to_give_up

TransferKey = tuple[float, ...]
REUSE, COLLECTIVE, HAND_OVER = 1, 2, 3  # stages of a prompt (MFS §3.1)
TIMELY, GIVEN_UP, TOO_LATE = 0.0, 1.0, 2.0  # which of them goes first


class WaitingTransfer(Protocol):
    """A transfer of which `left` bytes have yet to come. `number` counts in the order in which they were asked for.
    `due_s` is infinite where nothing is known. `stage` says what the bytes are for: `REUSE`, `COLLECTIVE` or
    `HAND_OVER`."""

    @property
    def number(self) -> int: ...

    @property
    def left(self) -> float: ...

    @property
    def due_s(self) -> float: ...

    @property
    def stage(self) -> int: ...


TransferOrder = Callable[[Sequence[WaitingTransfer], float, float], list[TransferKey]]


def fifo(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """First come, first served."""
    return [(each.number,) for each in waiting]


def edf(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """The earliest due time first, whether that can be met or not."""
    return [(each.due_s, each.number) for each in waiting]


def edf_late(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """The earliest due time first, and those that would be late even alone behind all others. Where `bytes_s` is
    infinite, these are those past their due times, as at the gate of `hmas.plugins.vllm_kv`."""
    return [(_late(each, now_s, bytes_s), each.due_s, each.number) for each in waiting]


def sjf(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """The fewest bytes left first."""
    return [(each.left, each.number) for each in waiting]


def by_stage(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """The earliest stage first, and first come, first served within one."""
    return [(each.stage, each.number) for each in waiting]


def max_on_time(waiting: Sequence[WaitingTransfer], now_s: float, bytes_s: float) -> list[TransferKey]:
    """The most on time of those that wait, by the law of the queue that ships (`hmas.laws.moore_hodgson`) for a port of
    `bytes_s`: those that are kept by due time, then those that are given up and then those that would be late even
    alone, of either the fewest bytes first."""
    jobs = [_PortWork(each.left / bytes_s, each.due_s - now_s, nth) for nth, each in enumerate(waiting)]
    jobs.sort(key=attrgetter("due_s", "nth"))
    keys: list[TransferKey] = [(TIMELY, each.due_s, each.number) for each in waiting]
    for job in to_give_up(jobs, 0.0, 1.0):
        each = waiting[job.nth]
        keys[job.nth] = (TOO_LATE if _late(each, now_s, bytes_s) else GIVEN_UP, each.left, each.number)
    return keys


ORDERS: Mapping[str, TransferOrder] = {
    "fifo": fifo,
    "edf": edf,
    "edf-late": edf_late,
    "sjf": sjf,
    "stages": by_stage,
    "max-on-time": max_on_time,
}


@dataclass(slots=True)
class _PortWork:
    """A transfer as Moore and Hodgson's law sees it: the seconds that it takes the port, due in so many from now."""

    work: float
    due_s: float
    nth: int

    @property
    def price(self) -> float:
        return self.work


def _late(transfer: WaitingTransfer, now_s: float, bytes_s: float) -> float:
    left_s = 0.0 if bytes_s == inf else transfer.left / bytes_s
    return TOO_LATE if now_s + left_s > transfer.due_s else TIMELY
