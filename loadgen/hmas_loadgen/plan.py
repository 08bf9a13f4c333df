"""What a run is: a trace, a target and how to send. Pure data, written to `config.yaml` without its secrets."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from hmas_loadgen.traces.row import Trace

MAX_TOKENS_STEP = 1024


class Api(StrEnum):
    """The endpoint a request goes to."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Lengths(StrEnum):
    """How the trace's output lengths are reproduced (DESIGN §3.5)."""

    REPLAY_FIELD = "replay-field"  # opaque body field of the mesh; every request has the same max_tokens
    DIRECT = "direct"  # max_tokens = min_tokens = n with ignore_eos, straight at an engine
    NATURAL = "natural"  # the model ends where it ends; the same max_tokens for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An OpenAI-compatible endpoint. Of several `base_urls` (without `/v1`) the one with the fewest outstanding
    requests is next. `tenant_keys`: API key by tenant, `api_key` for the rest. `body` and `headers` go into every
    request. `send_slo` states each request's SLO in headers; otherwise it stays the client's own knowledge."""

    base_urls: tuple[str, ...]
    model: str
    api: Api = Api.CHAT
    lengths: Lengths = Lengths.DIRECT
    api_key: str | None = None
    tenant_keys: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    send_slo: bool = False

    def __post_init__(self) -> None:
        for url in self.base_urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"base URL {url!r} must start with http:// or https://")
        if not self.base_urls:
            raise ValueError("a target needs at least one base URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """One run. Seconds throughout.

    The offered window is `window_s` (default: the trace's duration); requests that are still unfinished `drain_s`
    after it are cut off and count as not finished. Requests scheduled in the first `warmup_s` are sent, not scored.
    """

    name: str
    trace: Trace
    target: Target
    seed: int = 0
    window_s: float | None = None
    warmup_s: float = 0.0
    timeout_s: float = 600.0
    drain_s: float = 60.0
    max_tokens: int | None = None
    processes: int = 1
    max_in_flight: int = 20_000

    def __post_init__(self) -> None:
        if not self.trace.rows:
            raise ValueError("the trace has no requests")
        if self.processes < 1 or self.max_in_flight < 1:
            raise ValueError("processes and max_in_flight must be at least 1")
        if not 0 <= self.warmup_s < self.offered_s:
            raise ValueError(f"warmup_s must lie in [0, {self.offered_s:g}), the offered window")
        if self.max_tokens is not None and self.max_tokens < self.longest_output:
            raise ValueError(f"max_tokens must be at least {self.longest_output}, the trace's longest output")

    @property
    def offered_s(self) -> float:
        """Length of the offered window, never 0."""
        return self.window_s if self.window_s is not None else max(self.trace.duration_s, 1e-3)

    @property
    def longest_output(self) -> int:
        return max(row.output_tokens for row in self.trace.rows)

    @property
    def generous_max_tokens(self) -> int:
        """The one `max_tokens` of all requests: it says nothing about any single one."""
        return self.max_tokens or -(-self.longest_output // MAX_TOKENS_STEP) * MAX_TOKENS_STEP

    def fingerprint(self) -> str:
        """SHA-256 over the schedule and everything that shapes a request; equal means the same run."""
        digest = hashlib.sha256(json.dumps(self.config(), sort_keys=True, default=str).encode())
        for row in self.trace.rows:
            digest.update(repr((row.arrival_s, row.input_tokens, row.output_tokens, row.hash_ids, row.slo)).encode())
        return digest.hexdigest()

    def config(self) -> dict[str, object]:
        """The plan as plain data, without rows and without any key."""
        target = {k: v for k, v in asdict(self.target).items() if k not in ("api_key", "tenant_keys", "headers")}
        target |= {
            "base_urls": list(self.target.base_urls),
            "api": str(self.target.api),
            "lengths": str(self.target.lengths),
            "tenants": sorted(self.target.tenant_keys),
            "headers": sorted(self.target.headers),
        }
        return {
            "name": self.name,
            "trace": {
                "name": self.trace.name,
                "note": self.trace.note,
                "requests": len(self.trace.rows),
                "duration_s": self.trace.duration_s,
                "mean_rps": len(self.trace.rows) / self.offered_s,
            },
            "target": target,
            "seed": self.seed,
            "window_s": self.offered_s,
            "warmup_s": self.warmup_s,
            "timeout_s": self.timeout_s,
            "drain_s": self.drain_s,
            "max_tokens": self.generous_max_tokens,
            "processes": self.processes,
        }
