"""The plan of one load run: a trace, a target and how to send. Pure data, written to `config.yaml` without API keys and
header values."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from hmas_loadgen.traces.row import Trace
from hmas_loadgen.worth import Worth

MAX_TOKENS_STEP = 1024


class Api(StrEnum):
    """The OpenAI API that requests are sent to."""

    CHAT = "chat"
    COMPLETIONS = "completions"


class Lengths(StrEnum):
    """How answers get the output lengths of the trace (DESIGN §3.5)."""

    REPLAY_FIELD = (
        "replay-field"  # body field hmas_replay of the mesh, hidden from schedulers; max_tokens is the same for all
    )
    DIRECT = "direct"  # max_tokens = min_tokens = true length with ignore_eos, sent straight to an engine
    NATURAL = "natural"  # lengths are not reproduced: the model ends its answers; max_tokens is the same for all


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """An OpenAI-compatible endpoint. Of several `base_urls` (without `/v1`), each request goes to the one with the
    fewest outstanding requests. `tenant_keys` holds an API key by tenant; `api_key` serves all other tenants. `body`
    and `headers` are added to every request. With `send_slo`, headers state each request's SLO and each job's budget;
    otherwise only the load generator knows them. With `name_jobs`, a header names the job. Raises ValueError for a base
    URL that is missing or not HTTP."""

    base_urls: tuple[str, ...]
    model: str
    api: Api = Api.CHAT
    lengths: Lengths = Lengths.DIRECT
    api_key: str | None = None
    tenant_keys: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, object] = field(default_factory=dict)
    send_slo: bool = False
    name_jobs: bool = False

    def __post_init__(self) -> None:
        for url in self.base_urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"base URL {url!r} must start with http:// or https://")
        if not self.base_urls:
            raise ValueError("a target needs at least one base URL, such as http://HOST:PORT")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPlan:
    """The plan of one load run; times in seconds. Raises ValueError for values out of range.

    Requests are offered for `window_s` (None: the trace's duration); those that are still unfinished `drain_s` later
    are cut off and count as not finished. Requests scheduled in the first `warmup_s` are sent but not scored. A request
    is given up `timeout_s` after it was sent. `max_tokens` None means the longest output, rounded up to 1024 tokens.
    Requests beyond `max_in_flight` are recorded as failed without being sent. `worth` weights them in the utility.
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
    worth: Worth = field(default_factory=Worth)

    def __post_init__(self) -> None:
        if not self.trace.rows:
            raise ValueError(f"trace {self.trace.name!r} has no requests; choose another trace or window")
        if self.processes < 1 or self.max_in_flight < 1:
            raise ValueError(f"processes {self.processes} and max_in_flight {self.max_in_flight} must be at least 1")
        if self.target.api is not Api.CHAT and any(row.call is not None for row in self.trace.rows):
            raise ValueError("workflows are chats: they need --api chat")
        if not 0 <= self.warmup_s < self.offered_s:
            raise ValueError(f"warmup_s {self.warmup_s:g} must lie in [0, {self.offered_s:g}), the length of the run")
        if self.max_tokens is not None and self.max_tokens < self.longest_output:
            raise ValueError(
                f"max_tokens {self.max_tokens} must be at least {self.longest_output}, the longest output of the trace"
            )

    @property
    def offered_s(self) -> float:
        """Seconds in which requests are offered, more than 0."""
        return self.window_s if self.window_s is not None else max(self.trace.duration_s, 1e-3)

    @property
    def longest_output(self) -> int:
        return max(row.output_tokens for row in self.trace.rows)

    @property
    def generous_max_tokens(self) -> int:
        """The `max_tokens` that all requests share, so that it reveals nothing about the length of any single
        answer."""
        return self.max_tokens or -(-self.longest_output // MAX_TOKENS_STEP) * MAX_TOKENS_STEP

    def fingerprint(self) -> str:
        """SHA-256 in hex of the schedule and of everything that shapes a request. Plans with the same fingerprint make
        the same run."""
        shaping = {name: value for name, value in self.config().items() if name != "worth"}  # that only scores
        digest = hashlib.sha256(json.dumps(shaping, sort_keys=True, default=str).encode())
        for row in self.trace.rows:
            digest.update(repr((row.arrival_s, row.input_tokens, row.output_tokens, row.hash_ids, row.slo)).encode())
            if row.call is not None:
                call = row.call
                told = (call.job, call.after, call.outside_s, call.budget_s, call.messages[-1])
                digest.update(repr(told).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def config(self) -> dict[str, object]:
        """The plan as plain data for `config.yaml`, without the trace's rows, API keys and header values."""
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
            "worth": {"tenants": dict(self.worth.tenants), "classes": dict(self.worth.classes)},
        }
