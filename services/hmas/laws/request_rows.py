"""What is kept of a pool's past requests, for rehearsals: a row each, without text, and packed blocks of rows.

A block is JSON lines under zlib. It crosses processes and restarts as it is, with the age of its origin beside it,
because instants of two clocks cannot be compared.
"""

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any

import orjson

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.contracts.telemetry import RequestSettled
from hmas.laws.scoring import verdict

OBSERVED = "(observed)"  # the topology of a request that came while the mesh only observed
MAX_BLOCK_ROWS = 1024
MAX_BLOCK_CHARS = 16 * 2**20  # unpacked; a row has at most about 4 kB, because names are bounded
_MAX_NAME_CHARS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRow:
    """One past request. `arrival_s` is since the origin of its block. `stated`: `slo` came from the client or tenant,
    otherwise from the task type in its tags. Of a request that has not ended `outcome` is None; its latencies are None,
    as for any that never got that far. `withdrawn_s`: how long after its arrival its client left. `topology` is the one
    that its pool's workers used when it came, or `OBSERVED`. What perception said is `task`, `confidence` and the two
    lengths, as the worker corrected them by what it had learnt; `tagged_by` None: nothing came in time."""

    arrival_s: float
    tenant: str
    prompt_tokens: int
    slo: Slo
    model: str = ""
    job: str = ""
    weight: float = 1.0
    max_tokens: int | None = None
    stream: bool = True
    stated: bool = True
    priority: int = 0
    importance: float = 0.75
    relegate: bool = True
    topology: str = ""
    task: TaskType = TaskType.UNKNOWN
    tagged_by: TagSource | None = None
    confidence: float = 0.0
    predicted_output_tokens: float = 0.0
    predicted_output_tokens_p90: float = 0.0
    outcome: Outcome | None = None
    output_tokens: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    last_token_s: float | None = None
    withdrawn_s: float | None = None

    def settled(self) -> RequestSettled:
        """Returns the row as a settlement, to be judged. Raises ValueError for a request that has not ended."""
        if self.outcome is None:
            raise ValueError("a request that has not ended cannot be judged")
        return RequestSettled(
            request_id="",
            tenant=self.tenant,
            task=self.task,
            outcome=self.outcome,
            slo=self.slo,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            predicted_output_tokens=self.predicted_output_tokens,
            ttft_s=self.ttft_s,
            tpot_s=self.tpot_s,
            last_token_s=self.last_token_s,
            relegated=False,
            age_s=0.0,
            withdrawn_s=self.withdrawn_s,
        )

    @property
    def on_time(self) -> bool:
        """Whether it ended and counts for goodput."""
        return self.outcome is not None and verdict(self.settled()).ok


class RowError(ValueError):
    """A line or a block is not one of request rows. The message says why."""


_FIELDS = tuple(f.name for f in fields(RequestRow))
_DEFAULTS = {f.name: f.default for f in fields(RequestRow)}
_SLO_FIELDS = tuple(f.name for f in fields(Slo))
_NAMES = ("tenant", "model", "job", "topology")
_COUNTS = ("prompt_tokens", "output_tokens")
_NUMBERS = ("weight", "importance", "confidence", "predicted_output_tokens", "predicted_output_tokens_p90")
_LATENCIES = ("ttft_s", "tpot_s", "last_token_s", "withdrawn_s")


def row_line(row: RequestRow, origin_s: float | None = None) -> bytes:
    """Returns a row as one line of JSON, without the fields that have their default. If `origin_s` is given, the row's
    `arrival_s` is an instant, and the line counts from the origin, to a tenth of a millisecond."""
    slo = row.slo
    values = {name: value for name, default in _DEFAULTS.items() if (value := getattr(row, name)) != default}
    values["slo"] = {name: value for name in _SLO_FIELDS if (value := getattr(slo, name))}
    if origin_s is not None:
        values["arrival_s"] = round(row.arrival_s - origin_s, 4)
    return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


def parse_row(line: bytes) -> RequestRow:
    """Reads one line. Raises RowError if it is not a row, or a value cannot be true."""
    try:
        values: Any = orjson.loads(line)
        return _row(values)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise RowError(f"{line[:80]!r} is not a request row: {error}") from error


def _row(values: Mapping[str, Any]) -> RequestRow:
    if not isinstance(values, dict):
        raise TypeError("it is not a JSON object")
    if unknown := set(values) - set(_FIELDS):
        raise ValueError(f"unknown fields {', '.join(sorted(unknown)[:5])}")
    known = dict(values)
    known["slo"] = _slo(known["slo"])
    for name, kind in (("task", TaskType), ("tagged_by", TagSource), ("outcome", Outcome)):
        if known.get(name) is not None:
            known[name] = kind(known[name])
    row = RequestRow(**known)
    for name in _NAMES:
        if not isinstance(getattr(row, name), str) or len(getattr(row, name)) > _MAX_NAME_CHARS:
            raise ValueError(f"{name} must be a text of at most {_MAX_NAME_CHARS} characters")
    for name in _COUNTS:
        if not isinstance(getattr(row, name), int) or not 0 <= getattr(row, name) <= 2**32:
            raise ValueError(f"{name} must be a count")
    numbers = [(name, getattr(row, name)) for name in _NUMBERS]
    numbers += [(name, value) for name in _LATENCIES if (value := getattr(row, name)) is not None]
    for name, value in numbers:
        if not -60.0 <= float(value) <= 1e9:
            raise ValueError(f"{name} must be a number from 0 on")
    if not isfinite(row.arrival_s) or row.weight <= 0.0 or abs(int(row.priority)) > 2**31:
        raise ValueError("arrival_s, weight or priority is out of range")
    if row.max_tokens is not None and not 0 <= int(row.max_tokens) <= 2**32:
        raise ValueError("max_tokens must be a count")
    return row


def _slo(values: Mapping[str, Any]) -> Slo:
    slo = Slo(**values)
    limits = (slo.ttft_s, slo.tpot_s, *(() if slo.ttlt_s is None else (slo.ttlt_s,)))
    if not all(0.0 < limit <= 1e9 for limit in limits):
        raise ValueError("an SLO must be a number of seconds above 0")
    return slo


def pack(rows: Iterable[RequestRow], origin_s: float | None = None) -> bytes:
    """Returns a block of rows; `origin_s` as in `row_line`."""
    return zlib.compress(b"".join([row_line(row, origin_s) for row in rows]), 1)


def unpack(block: bytes) -> list[RequestRow]:
    """Reads a block. Raises RowError if it is none, or larger than a block may be."""
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(block, MAX_BLOCK_CHARS)
    except zlib.error as error:
        raise RowError(f"{len(block)} bytes are not a block of request rows: {error}") from error
    if not inflate.eof:
        raise RowError(f"a block of request rows is cut off, or has more than {MAX_BLOCK_CHARS} bytes")
    return [parse_row(line) for line in text.splitlines()]
