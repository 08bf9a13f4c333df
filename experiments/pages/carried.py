"""Rows of a results page that earlier code computed, which stand until they are computed anew."""

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

UNKNOWN = "unknown"


class Marked(Protocol):
    """A row that tells the commit whose code computed it."""

    @property
    def commit(self) -> str: ...


KeptRow = TypeVar("KeptRow", bound=Marked)


def present_commit() -> str:
    """Returns the abbreviated commit of the clone that runs; `UNKNOWN` outside one."""
    return _git("rev-parse", "--short", "HEAD", folder=Path(__file__).parent)


def merged(
    found: Sequence[KeptRow], before: Path, made: Callable[[dict[str, Any]], KeptRow], key: Callable[[KeptRow], Any]
) -> list[KeptRow]:
    """Returns the rows of the file `before`, in their order, those that were found anew in the place of the old, and
    then the new ones. An old row without a commit has that which last changed the file."""
    if not before.exists():
        return list(found)
    new = {key(row): row for row in found}
    rows, published = [], ""
    for document in json.loads(before.read_text(encoding="utf-8")):
        if not document.get("commit"):
            published = published or _git("log", "-1", "--format=%h", "--", before.name, folder=before.parent)
            document["commit"] = published
        old = made(document)
        rows.append(new.pop(key(old), old))
    return [*rows, *new.values()]


def told(rows: Sequence[Marked], now: str) -> str:
    """Returns a sentence about the rows that other code than that of the commit `now` computed; empty if there are
    none."""
    others = sorted({row.commit for row in rows if row.commit != now})
    if not others:
        return ""
    count = sum(row.commit != now for row in rows)
    return (
        f"{count} of {len(rows)} rows were computed by earlier code ({', '.join(others)}) and the others by that of "
        f"{now}; the column *commit* tells which."
    )


def _git(*words: str, folder: Path) -> str:
    try:
        done = subprocess.run(("git", "-C", str(folder), *words), capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN
    return done.stdout.strip() or UNKNOWN
