"""Where the emulated engine publishes the events of its KV cache: what vLLM's `--kv-events-config` takes."""

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class KvPublisherConfig:
    """`port`, `replay_port`: on which subscribers are heard, and requests for what was published before (0: none are).
    `buffer_steps`: batches that are kept for these. `hwm`: most batches that wait for a slow subscriber; it misses
    others."""

    host: str
    port: int
    replay_port: int = 0
    buffer_steps: int = 10_000
    hwm: int = 100_000

    @staticmethod
    def parse(text: str) -> "KvPublisherConfig":
        """Reads what vLLM's flag takes. Raises ValueError if it is unusable."""
        told = json.loads(text)
        if not isinstance(told, dict) or told.get("publisher", "zmq") != "zmq":
            raise ValueError('--kv-events-config takes {"endpoint": "tcp://*:PORT", "replay_endpoint": "tcp://*:PORT"}')
        host, port = _bound(told.get("endpoint", "tcp://*:5557"))
        replay = told.get("replay_endpoint")
        sizes = {name: int(told[name]) for name in ("buffer_steps", "hwm") if name in told}
        return KvPublisherConfig(host, port, _bound(replay)[1] if replay else 0, **sizes)


def _bound(endpoint: Any) -> tuple[str, int]:
    parts = urlsplit(endpoint if isinstance(endpoint, str) else "")
    if parts.scheme != "tcp" or not parts.hostname or not parts.port:
        raise ValueError(f"the endpoint {endpoint!r} of KV events is unusable: give tcp://*:PORT")
    return "0.0.0.0" if parts.hostname == "*" else parts.hostname, parts.port
