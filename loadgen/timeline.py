"""Asks a target that is our mesh what it decided during the run (`GET /hmas/timeline`); other targets do not know it.

The answer is `{"topology": [{"unix_s", "topology"}, ...], "control": [{"unix_s", "worker", "n_run", "b_token"}, ...]}`.
"""

from typing import Any

import aiohttp
import orjson

MAX_BYTES = 32 * 2**20
TIMEOUT_S = 5.0


async def fetch_timeline(base_url: str, api_key: str | None = None) -> dict[str, list[dict[str, Any]]] | None:
    """The mesh's timeline, or None where there is none: it is an ornament of the report, never an error."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.get(f"{base_url.rstrip('/')}/hmas/timeline", headers=headers) as response,
        ):
            if response.status != 200:
                return None
            value = orjson.loads(await response.content.read(MAX_BYTES))
    except (aiohttp.ClientError, TimeoutError, OSError, orjson.JSONDecodeError):
        return None
    if not isinstance(value, dict):
        return None
    parts = {name: value.get(name) for name in ("topology", "control")}
    return {name: [e for e in part if isinstance(e, dict)] for name, part in parts.items() if isinstance(part, list)}
