"""Files of past requests: the mesh's own, JSON lines with all that a rehearsal needs, and Mooncake's, with lengths."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hmas.contracts.control import INITIAL_TOPOLOGY
from hmas.contracts.outcome import Outcome
from hmas.contracts.rehearsal import Policy, PoolFacts
from hmas.contracts.request import TaskType
from hmas.laws.figures import MOST_TOKENS, sane
from hmas.laws.request_rows import RequestRow, RowError, parse_row, row_line
from hmas.laws.slo import default_slo

VERSION = 2
MAX_ROWS = 400_000
MAX_MS = 1e13  # of a timestamp, which may count from 1970
_POLICY, _FACTS = TypeAdapter(Policy), TypeAdapter(PoolFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """A pool's past requests, in order of arrival, with `arrival_s` below 0 because it counts from the end of the
    record. `facts` None: the file does not tell which engines served them."""

    pool: str
    in_force: Policy
    rows: tuple[RequestRow, ...]
    facts: PoolFacts | None = None


def write_own(past: Past, path: Path) -> None:
    """Writes everything: a line about the pool, then a line for each request."""
    head: dict[str, Any] = {
        "hmas_past": VERSION, "pool": past.pool, "in_force": _POLICY.dump_python(past.in_force, mode="json"),
        "facts": None if past.facts is None else _FACTS.dump_python(past.facts, mode="json"),
    }  # fmt: skip
    path.write_bytes(json.dumps(head).encode() + b"\n" + b"".join(map(row_line, past.rows)))


def write_mooncake(past: Past, path: Path) -> int:
    """Writes arrivals and lengths in Mooncake's form. Returns the number of requests left out because their output
    length is not known."""
    known = [row for row in past.rows if row.outcome is Outcome.FINISHED]
    first_s = known[0].arrival_s if known else 0.0
    lines = [
        {
            "timestamp": round(1000.0 * (row.arrival_s - first_s)), "input_length": row.prompt_tokens,
            "output_length": row.output_tokens, "hash_ids": [],
        }
        for row in known
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return len(past.rows) - len(known)


def read_past(path: Path) -> Past:
    """Reads a file of either form. Raises ValueError that names the file and the line, OSError if it cannot be read."""
    with path.open("rb") as file:
        lines = list(islice(file, MAX_ROWS + 2))  # a line about the pool, and one too many
    try:
        head: Any = json.loads(lines[0]) if lines else None
    except ValueError as error:
        raise ValueError(
            f"{path}: the first line is not JSON ({error}): give a file of `hmas whatif --export`"
        ) from None
    if isinstance(head, dict) and "hmas_past" in head:
        if head["hmas_past"] != VERSION:
            raise ValueError(f"{path}: it was written by another version of `hmas whatif --export`: export it again")
        _check_rows(path, len(lines) - 1)
        return _own(path, head, lines[1:])
    if isinstance(head, dict) and {"timestamp", "input_length", "output_length"} <= set(head):
        _check_rows(path, len(lines))
        return _mooncake(path, lines)
    raise ValueError(
        f"{path}: this is not a record of past requests: give a file of `hmas whatif --export`, or a trace in "
        "Mooncake's form (timestamp in ms, input_length, output_length)"
    )


def _check_rows(path: Path, rows: int) -> None:
    if rows > MAX_ROWS:
        raise ValueError(
            f"{path} holds more than {MAX_ROWS} requests: remove the oldest ones, or export a shorter time with --last"
        )


def _own(path: Path, head: dict[str, Any], lines: Sequence[bytes]) -> Past:
    try:
        facts = None if head.get("facts") is None else _FACTS.validate_python(head["facts"])
        in_force, pool = _POLICY.validate_python(head["in_force"]), str(head["pool"])
    except (ValidationError, KeyError) as error:
        raise ValueError(f"{path}, line 1: {error}") from None
    rows = []
    for number, line in enumerate(lines, 2):
        try:
            rows.append(parse_row(line))
        except RowError as error:
            raise ValueError(f"{path}, line {number}: {error}") from None
    return Past(pool=pool, in_force=in_force, rows=tuple(sorted(rows, key=lambda row: row.arrival_s)), facts=facts)


def _mooncake(path: Path, lines: Sequence[bytes]) -> Past:
    """Reads lengths and times. SLOs are the defaults of an unknown task type, and nobody predicted or observed
    anything."""
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            body = json.loads(line)
            rows.append(
                RequestRow(
                    arrival_s=_figure(body, "timestamp", MAX_MS) / 1000.0,
                    tenant="default",
                    prompt_tokens=max(1, int(_figure(body, "input_length", MOST_TOKENS))),
                    slo=default_slo(TaskType.UNKNOWN),
                    outcome=Outcome.FINISHED,
                    output_tokens=max(1, int(_figure(body, "output_length", MOST_TOKENS))),
                )
            )
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}, line {number}: {error!r}: correct or remove that line") from None
    last_s = max(row.arrival_s for row in rows)
    ended = (replace(row, arrival_s=row.arrival_s - last_s - 1e-3) for row in rows)
    policy = Policy(topology=INITIAL_TOPOLOGY)
    return Past(pool="", in_force=policy, rows=tuple(sorted(ended, key=lambda row: row.arrival_s)))


def _figure(body: Any, name: str, most: float) -> float:
    number = sane(body[name], most)
    if number is None:
        raise ValueError(f"`{name}` must be a number from 0 to {most:g}")
    return number
