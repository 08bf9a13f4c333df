"""The book of usage: counts by day, tenant and API key."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import NamedTuple

from hmas.contracts.telemetry import RequestSettled

MAX_ROWS = 100_000  # of one day; what comes beyond is booked under the key `other`
OTHER = "other"


class UsageKey(NamedTuple):
    """What is counted together. `day` is a UTC date such as 2027-01-31, `key` the id of an API key, empty without
    keys."""

    day: str
    tenant: str
    key: str


@dataclass(slots=True, kw_only=True)
class UsageCounts:
    """Counts of requests and of tokens. A request was on time or late by its SLOs, or is unjudged because its client
    caused its end. `cached_tokens` are those of `prompt_tokens` that an engine had in its cache."""

    requests: int = 0
    on_time: int = 0
    late: int = 0
    unjudged: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0

    def add(self, other: "UsageCounts") -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTS = tuple(field.name for field in fields(UsageCounts))


class Used(NamedTuple):
    """What only the gateway's shell knows of a request: the id of its API key, whether an engine ever ran it, and those
    of its prompt's tokens that the engine had in its cache. The prompt of a request that never ran is not counted."""

    key: str = ""
    ran: bool = False
    cached_tokens: int = 0


UNKNOWN_USE = Used()


class UsageBook:
    """The counts of the days that are not in a file for good yet."""

    def __init__(self) -> None:
        self._days: dict[str, dict[UsageKey, UsageCounts]] = {}
        self._changed: set[str] = set()

    def count(self, unix_s: float, used: Used, settled: RequestSettled, told: str) -> None:
        """Books a request that ended at the Unix instant `unix_s`. `told` is its verdict as in the metrics: ok,
        unjudged, or why it counts as late."""
        counts = self._row(UsageKey(day_of(unix_s), settled.tenant, used.key))
        counts.requests += 1
        if told == "ok":
            counts.on_time += 1
        elif told == "unjudged":
            counts.unjudged += 1
        else:
            counts.late += 1
        counts.prompt_tokens += settled.prompt_tokens if used.ran else 0
        counts.cached_tokens += used.cached_tokens
        counts.output_tokens += settled.output_tokens

    def resume(self, rows: dict[UsageKey, UsageCounts]) -> None:
        """Adds what was booked before a restart."""
        for row, counts in rows.items():
            self._row(row).add(counts)

    def changed(self) -> dict[str, dict[UsageKey, UsageCounts]]:
        """Returns the rows of each day that changed since the last call of `written`, by day."""
        return {day: dict(self._days[day]) for day in sorted(self._changed)}

    def written(self, day: str, today: str) -> None:
        """Learns that the rows of a day are in their file. Those of a past day are forgotten."""
        self._changed.discard(day)
        if day < today:
            self._days.pop(day, None)

    def forget(self, day: str) -> None:
        """Gives up a day that could not be written for too long."""
        self._changed.discard(day)
        self._days.pop(day, None)

    def _row(self, row: UsageKey) -> UsageCounts:
        self._changed.add(row.day)
        rows = self._days.setdefault(row.day, {})
        found = rows.get(row)
        if found is None:
            if len(rows) >= MAX_ROWS:
                row = UsageKey(row.day, row.tenant, OTHER)
            found = rows.setdefault(row, UsageCounts())
        return found


def day_of(unix_s: float) -> str:
    """Returns the UTC date of a Unix instant, as in 2027-01-31."""
    return datetime.fromtimestamp(unix_s, UTC).date().isoformat()
