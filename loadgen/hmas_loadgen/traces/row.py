"""The rows of a trace, which every reader of a format returns, and the error that readers raise."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hmas.contracts.request import Slo, TaskType


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceCall:
    """A request as a call of a job: its `number` in it, the numbers of the calls `after` whose end it is sent, and
    `outside_s`, the seconds from then on. `budget_s`: what the whole job is allowed; None: nothing is stated.
    `messages` is the chat that is sent."""

    job: str
    template: str
    number: int
    after: tuple[int, ...]
    outside_s: float
    budget_s: float | None
    messages: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRow:
    """One request of a trace. `arrival_s`: seconds since the trace's first request. With a `call` it is the instant at
    which its job starts; the rows of a job then follow one another, and each waits only for earlier ones.

    `hash_ids` name the prompt's blocks in order; prompts with equal leading ids have an equal prefix. `slo` and
    `importance` (imp_r in H-MAS Eq. 14) are None until `annotate` sets them.
    """

    arrival_s: float
    input_tokens: int
    output_tokens: int
    hash_ids: tuple[int, ...] = ()
    prompt: str | None = None
    task: TaskType | None = None
    slo: Slo | None = None
    tenant: str | None = None
    importance: float | None = None
    call: TraceCall | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace: its rows in order of arrival, and facts about all of them. `block_tokens` is the number of prompt tokens
    that one hash id stands for.

    `note` says in words what was done to the rows after they were read, such as scaling. `span_s` is the length of the
    time window that the rows were taken from or made for, None if unknown. `drawn` marks rows drawn at random from
    published rates.
    """

    name: str
    rows: tuple[TraceRow, ...]
    block_tokens: int = 512
    note: str = ""
    span_s: float | None = None
    drawn: bool = False

    @property
    def duration_s(self) -> float:
        """Seconds of `span_s` if known, otherwise from 0 to the last arrival."""
        if self.span_s is not None:
            return self.span_s
        return self.rows[-1].arrival_s if self.rows else 0.0

    def derived(self, rows: Iterable[TraceRow], note: str, span_s: float | None = None) -> "Trace":
        """Returns a copy with other rows. `note` is appended to the trace's note; `span_s` None keeps the span."""
        history = f"{self.note}; {note}" if self.note else note
        return replace(self, rows=tuple(rows), note=history, span_s=self.span_s if span_s is None else span_s)


class TraceError(ValueError):
    """Raised if a trace cannot be read. The message names the file, the line and what to do."""

    def __init__(self, path: Path | str, line: int | None, reason: str, remedy: str) -> None:
        where = f"{path}, line {line}" if line is not None else str(path)
        super().__init__(f"{where}: {reason}. {remedy}")


def from_zero(rows: list[TraceRow]) -> tuple[TraceRow, ...]:
    """Returns the rows in order of arrival (ties keep the file's order), shifted so that the first arrives at 0 s."""
    ordered = sorted(rows, key=lambda row: row.arrival_s)
    if not ordered or ordered[0].arrival_s == 0.0:
        return tuple(ordered)
    start = ordered[0].arrival_s
    return tuple(replace(row, arrival_s=round(row.arrival_s - start, 9)) for row in ordered)
