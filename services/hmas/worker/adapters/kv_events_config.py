"""Where an engine publishes the events of its KV cache, and how it is followed there."""

from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class KvEventsConfig:
    """`url`, `replay_url`: tcp://HOST:PORT of the engine's publisher, and of its replay socket, empty without one.
    `period_s`: between two reports of the count; that all was cleared is reported at once. `max_bytes`: of a batch of
    events; those that wait stay with the engine, as many as it was told to keep. `max_replayed`: most batches that are
    read of a replay; vLLM keeps 10,000."""

    url: str
    replay_url: str = ""
    period_s: float = 0.02
    timeout_s: float = 3.0
    retry_s: float = 1.0
    max_bytes: int = 2**20
    max_replayed: int = 20_000

    def __post_init__(self) -> None:
        for url in filter(None, (self.url, self.replay_url)):
            address_of(url)


def address_of(url: str) -> tuple[str, int]:
    """Returns host and port of a ZeroMQ URL. Raises ValueError if it is none that can be connected to."""
    parts = urlsplit(url)
    if parts.scheme != "tcp" or not parts.hostname or parts.hostname == "*" or not parts.port:
        raise ValueError(f"the address of KV events {url!r} is unusable: give tcp://HOST:PORT")
    return parts.hostname, parts.port
