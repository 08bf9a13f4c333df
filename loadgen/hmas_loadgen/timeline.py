"""Asks a target for its recent decisions by `GET /hmas/timeline?model=NAME`, which only a gateway of the mesh answers.

The answer: `{"topology": [{"unix_s", "pool", "topology"}], "control": [{"unix_s", "worker", "n_run", "b_token"}]}`.
"""

from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

import orjson

MAX_BYTES = 32 * 2**20
TIMEOUT_S = 5.0

Moment = Mapping[str, object]
Timeline = Mapping[str, Sequence[Moment]]


def fetch_timeline(base_url: str, model: str, api_key: str | None = None) -> dict[str, list[dict[str, Any]]] | None:
    """Returns the recent topologies and control values of the model's pool, or None if the target cannot tell: the
    report is then made without them. Blocks for up to 5 s or so."""
    url = f"{base_url.rstrip('/')}/hmas/timeline?model={quote(model, safe='')}"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with urlopen(Request(url, headers=headers), timeout=TIMEOUT_S) as response:
            value = orjson.loads(response.read(MAX_BYTES))
    except (OSError, HTTPException, orjson.JSONDecodeError):
        return None
    if not isinstance(value, dict):
        return None
    parts = {name: value.get(name) for name in ("topology", "control")}
    return {name: [e for e in part if isinstance(e, dict)] for name, part in parts.items() if isinstance(part, list)}


def during(timeline: Timeline, started_unix_s: float, seconds: float) -> dict[str, list[dict[str, object]]]:
    """Returns the entries of a timeline that fall into a run of `seconds` from `started_unix_s`. Each gets a field
    `at_s`, seconds since the run's start. The entry in force when the run began is kept with `at_s` 0."""
    found: dict[str, list[dict[str, object]]] = {}
    for part, entries in timeline.items():
        timed = [dict(e) | {"at_s": max(0.0, at_s)} for e in entries if (at_s := _at(e) - started_unix_s) < seconds]
        last_of: dict[
            tuple[object, object], int
        ] = {}  # of the entries before the run, only the last per pool and worker is kept
        for i, entry in enumerate(timed):
            if entry["at_s"] == 0.0:
                last_of[entry.get("pool"), entry.get("worker")] = i
        found[part] = [e for i, e in enumerate(timed) if e["at_s"] != 0.0 or i in last_of.values()]
    return found


def _at(entry: Moment) -> float:
    value = entry.get("unix_s")
    return float(value) if isinstance(value, int | float) else 0.0
