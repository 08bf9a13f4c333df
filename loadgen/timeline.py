"""Asks a target that is our mesh what it decided during the run (`GET /hmas/timeline`); other targets do not know it.

The answer is `{"topology": [{"unix_s", "topology"}, ...], "control": [{"unix_s", "worker", "n_run", "b_token"}, ...]}`.
"""

from http.client import HTTPException
from typing import Any
from urllib.request import Request, urlopen

import orjson

MAX_BYTES = 32 * 2**20
TIMEOUT_S = 5.0


def fetch_timeline(base_url: str, api_key: str | None = None) -> dict[str, list[dict[str, Any]]] | None:
    """The mesh's timeline, or None where there is none: it is an ornament of the report, never an error. Blocks."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        with urlopen(Request(f"{base_url.rstrip('/')}/hmas/timeline", headers=headers), timeout=TIMEOUT_S) as response:
            value = orjson.loads(response.read(MAX_BYTES))
    except (OSError, HTTPException, orjson.JSONDecodeError):
        return None
    if not isinstance(value, dict):
        return None
    parts = {name: value.get(name) for name in ("topology", "control")}
    return {name: [e for e in part if isinstance(e, dict)] for name, part in parts.items() if isinstance(part, list)}
