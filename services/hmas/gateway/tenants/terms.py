"""The terms of a request: SLO, priority, importance and flow, from its headers, its tenant and the defaults.

Most headers have two spellings; llm-d's outranks the other. Headers outrank the tenant's defaults, and these outrank
the default SLOs of H-MAS Table 6. What a header states is clamped by the tenant's bounds.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import nan

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.request import Slo, TaskType
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.openai.tiers import PRIORITY_LIMIT, ServiceTier
from hmas.laws.slo import DEFAULT_IMPORTANCE, default_slo

MAX_SLO_MS = 3_600_000.0  # an hour
MAX_TTLT_MS = 24 * MAX_SLO_MS
MIN_IMPORTANCE, MAX_IMPORTANCE = 0.5, 1.0  # Eq. 14
DEFAULT_FLOW = "default"

_TTFT = (b"x-llm-d-slo-ttft-ms", b"x-slo-ttft-ms")
_TPOT = (b"x-llm-d-slo-tpot-ms", b"x-slo-tpot-ms")
_TTLT = (b"x-llm-d-slo-ttlt-ms", b"x-slo-ttlt-ms")
_PRIORITY = (b"x-llm-d-priority", b"x-priority")
_FLOW = (b"x-llm-d-inference-fairness-id", b"x-gateway-inference-fairness-id")
_IMPORTANCE = (b"x-hmas-importance",)
QUEUE_STATUS = b"x-hmas-queue-status"
OUTCOME = b"x-hmas-outcome"


class OutcomePlace(StrEnum):
    """Where else than in the head a client wants the outcome of its answer: in the last comment of a stream, or in the
    field `usage` of an answer or of a stream's last counts of tokens."""

    COMMENT = "comment"
    USAGE = "usage"


_EDGE = (QUEUE_STATUS, OUTCOME, b"authorization", b"x-api-key", b"content-length", b"x-request-id", b"traceparent")
# The names by which clients, agents and other routers tell which requests belong together; the first counts.
JOB_HEADERS = (
    b"x-hmas-job",
    b"x-dynamo-session-id",
    b"x-claude-code-session-id",
    b"session-id",
    b"session_id",
    b"x-session-id",
    b"x-session-affinity",
    b"x-smg-routing-key",
)
_JOB_BUDGET = (b"x-slo-job-ms",)
_ON_MISS = b"x-slo-on-miss"
KNOWN_HEADERS = frozenset(
    (*JOB_HEADERS, *_JOB_BUDGET, _ON_MISS, *_EDGE, *_TTFT, *_TPOT, *_TTLT, *_PRIORITY, *_FLOW, *_IMPORTANCE)
)

_DECIMAL = re.compile(rb"[+-]?[0-9]{1,15}(\.[0-9]{0,15})?([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(rb"-?[0-9]{1,10}")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
_FLOW_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class SloBounds:
    """Bounds of the SLOs that headers may state, in seconds, each at least `low` and at most `high`; None: unbounded.
    The fields are pairs (low, high)."""

    ttft_s: tuple[float | None, float | None] = (None, None)
    tpot_s: tuple[float | None, float | None] = (None, None)
    ttlt_s: tuple[float | None, float | None] = (None, None)


UNBOUNDED = SloBounds()


FLEX_FACTOR = 4.0  # the tier `flex` may wait this many times as long as the default one
FLEX_PRIORITY = 1_000_000  # later than a client of another tier usually asks for


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant and the defaults of its requests; SLOs in seconds, None: not set.

    `priority_ceiling`: the lowest priority number its requests may ask for (lower is served earlier). `models`: the
    models it may use, None: all. `relegate`: whether a request that cannot be on time is served late (true) or refused.
    `slo_bounds`: those of the SLOs that its clients state. `allowed_body_fields`: fields that steer an engine and that
    it may send.
    """

    name: str
    weight: float = 1.0
    priority_ceiling: int = 0
    ttft_s: float | None = None
    tpot_s: float | None = None
    ttlt_s: float | None = None
    importance: float = DEFAULT_IMPORTANCE
    relegate: bool = True
    models: frozenset[str] | None = None
    slo_bounds: SloBounds = UNBOUNDED
    allowed_body_fields: frozenset[str] = frozenset()
    limits: TenantLimits = field(default_factory=lambda: TenantLimits(tenant=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a request may expect. `clamped` names the stated SLOs that the tenant's bounds changed, with the values in
    force, as in `ttft_ms=500; tpot_ms=20`. `job_budget_s`: what is allowed for the whole job; None: not stated.
    `relegate`: whether it is served late if it cannot be on time; otherwise it is refused. `slo_from`: where the SLO
    comes from, `header`, `tier` or `tenant`; empty if nobody stated it.
    """

    slo: Slo
    slo_stated: bool
    priority: int
    importance: float
    flow: str
    clamped: str = ""
    job_budget_s: float | None = None
    relegate: bool = True
    slo_from: str = ""


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Returns the headers that the gateway uses, by name in lower case. If one is repeated, its first value counts."""
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in KNOWN_HEADERS:
            headers.setdefault(name, value)
    return headers


def client_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """Returns the client's `X-Request-Id` if it consists of 1-128 of the characters A-Z a-z 0-9 . _ : -"""
    value = headers.get(b"x-request-id")
    return value.decode() if value is not None and _REQUEST_ID.fullmatch(value) else None


def outcome_place(headers: Mapping[bytes, bytes]) -> tuple[OutcomePlace | None, str]:
    """Returns where the header `x-hmas-outcome` wants the outcome, None: nowhere, and what the answer says of a value
    that means no place, otherwise nothing."""
    value = headers.get(OUTCOME)
    place = next((each for each in OutcomePlace if each.value.encode() == value), None)
    known = " or ".join(OutcomePlace)
    return place, "" if value is None or place is not None else f"unknown value of {OUTCOME.decode()}, use {known}"


def declared_job(headers: Mapping[bytes, bytes]) -> str:
    """Returns the job that the client or its agent names, by the first header of `JOB_HEADERS` that holds 1-128 of the
    characters A-Z a-z 0-9 . _ : -; "" if there is none."""
    for name in JOB_HEADERS:
        value = headers.get(name)
        if value is not None and _REQUEST_ID.fullmatch(value):
            return value.decode()
    return ""


def traceparent(headers: Mapping[bytes, bytes]) -> str:
    """Returns the header `traceparent` (W3C trace context), or "" if it is missing or malformed."""
    value = headers.get(b"traceparent")
    return value.decode() if value is not None and _TRACEPARENT.fullmatch(value) else ""


def terms_of(
    headers: Mapping[bytes, bytes],
    tenant: Tenant,
    body_priority: int | None,
    *,
    stream: bool,
    tier: ServiceTier = ServiceTier.DEFAULT,
) -> Terms:
    """Returns the terms of a request. A priority in the headers outranks the one in the body, and this that of the
    service tier; SLOs in the headers outrank those of the tier.

    Raises InvalidRequest, which names the header, if a header's value is out of its range.
    """
    importance = header_number(headers, _IMPORTANCE, MIN_IMPORTANCE, MAX_IMPORTANCE)
    if importance is None:
        importance = _TIER_IMPORTANCE.get(tier, tenant.importance)
    bounds, clamped = tenant.slo_bounds, list[str]()
    ttft_s = _clamp(header_seconds(headers, _TTFT, MAX_SLO_MS), bounds.ttft_s, "ttft_ms", clamped)
    tpot_s = _clamp(header_seconds(headers, _TPOT, MAX_SLO_MS), bounds.tpot_s, "tpot_ms", clamped)
    ttlt_s = _clamp(header_seconds(headers, _TTLT, MAX_TTLT_MS), bounds.ttlt_s, "ttlt_ms", clamped)
    # The tenant's bounds of the time to the last token hold for a whole job too.
    job_s = _clamp(header_seconds(headers, _JOB_BUDGET, MAX_TTLT_MS), bounds.ttlt_s, "job_ms", clamped)
    relegate = takes_late(headers, tenant)
    if not relegate and headers.get(_ON_MISS) == b"relegate":
        clamped.append("on_miss=refuse")
    slo, stated = _slo(ttft_s, tpot_s, ttlt_s, tenant, importance, stream=stream)
    source = "tenant" if stated else ""
    if ttft_s is not None or tpot_s is not None or ttlt_s is not None:
        source = "header"
    elif tier is ServiceTier.FLEX:
        slo, stated, source = _lax(slo, bounds), True, "tier"  # so that no default of the task type replaces it
    priority = header_whole_number(headers, _PRIORITY, PRIORITY_LIMIT)
    if priority is None:
        priority = _tier_priority(tier, tenant) if body_priority is None else body_priority
    return Terms(
        slo=slo,
        slo_stated=stated,
        priority=max(priority, tenant.priority_ceiling),
        importance=importance,
        flow=_flow(headers),
        clamped="; ".join(clamped),
        job_budget_s=job_s,
        relegate=relegate,
        slo_from=source,
    )


def takes_late(headers: Mapping[bytes, bytes], tenant: Tenant) -> bool:
    """Returns whether a request is served late if it cannot be on time, rather than refused. A client may ask for a
    refusal, and for a late answer unless its tenant refuses. Raises InvalidRequest, which names the header, if it asks
    for something else."""
    asked = headers.get(_ON_MISS, b"relegate")
    if asked not in (b"relegate", b"refuse"):
        name = _ON_MISS.decode()
        raise InvalidRequest(f"the header `{name}` must be `refuse` or `relegate`", name)
    return tenant.relegate and asked == b"relegate"


_TIER_IMPORTANCE = {ServiceTier.FLEX: MIN_IMPORTANCE, ServiceTier.PRIORITY: MAX_IMPORTANCE}


def _tier_priority(tier: ServiceTier, tenant: Tenant) -> int:
    if tier is ServiceTier.FLEX:
        return FLEX_PRIORITY
    return tenant.priority_ceiling if tier is ServiceTier.PRIORITY else 0


def _lax(slo: Slo, bounds: SloBounds) -> Slo:
    """Returns the SLO of the tier `flex`, in place of the one of the default tier; the tenant's bounds hold for it."""

    def lax(value_s: float, most_s: float | None) -> float:
        return max(value_s, FLEX_FACTOR * value_s if most_s is None else min(FLEX_FACTOR * value_s, most_s))

    ttlt_s = None if slo.ttlt_s is None else lax(slo.ttlt_s, bounds.ttlt_s[1])
    return replace(
        slo, ttft_s=lax(slo.ttft_s, bounds.ttft_s[1]), tpot_s=lax(slo.tpot_s, bounds.tpot_s[1]), ttlt_s=ttlt_s
    )


def _clamp(
    stated_s: float | None, bounds: tuple[float | None, float | None], name: str, clamped: list[str]
) -> float | None:
    """Returns a stated SLO within its bounds; one that had to be changed is added to `clamped`."""
    low_s, high_s = bounds
    if stated_s is None:
        return None
    if low_s is not None and stated_s < low_s:
        stated_s = low_s
    elif high_s is not None and stated_s > high_s:
        stated_s = high_s
    else:
        return stated_s
    clamped.append(f"{name}={stated_s * 1000.0:g}")
    return stated_s


def _slo(
    ttft_s: float | None, tpot_s: float | None, ttlt_s: float | None, tenant: Tenant, importance: float, *, stream: bool
) -> tuple[Slo, bool]:
    """Returns the SLO, and whether the client or the tenant stated it. Only the time of the last token is judged
    (`whole`) if the answer is not streamed, or if a TTLT alone is stated."""
    if ttft_s is None and tpot_s is None and ttlt_s is None:
        ttft_s, tpot_s, ttlt_s = tenant.ttft_s, tenant.tpot_s, tenant.ttlt_s
        if ttft_s is None and tpot_s is None and ttlt_s is None:
            return default_slo(TaskType.UNKNOWN, importance, whole=not stream), False
    whole = not stream or (ttft_s is None and tpot_s is None)
    default = default_slo(TaskType.UNKNOWN, importance)
    return Slo(
        ttft_s or tenant.ttft_s or default.ttft_s, tpot_s or tenant.tpot_s or default.tpot_s, ttlt_s, whole
    ), True


def _first(headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> tuple[str, bytes] | None:
    for name in names:
        value = headers.get(name)
        if value is not None:
            return name.decode(), value
    return None


def header_seconds(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], limit_ms: float) -> float | None:
    """Returns a header's milliseconds, above 0 and at most `limit_ms`, as seconds; see `header_number`."""
    milliseconds = header_number(headers, names, 0.001, limit_ms)
    return None if milliseconds is None else milliseconds / 1000.0


def header_number(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], low: float, high: float) -> float | None:
    """Returns the number in the first of the named headers that is there, None without any. A number is written as
    usual, as in 250, 2.5 or 3e4. Raises InvalidRequest, which names the header, if it is none from `low` to `high`."""
    found = _first(headers, names)
    if found is None:
        return None
    name, value = found
    number = float(value) if _DECIMAL.fullmatch(value) else nan
    if not low <= number <= high:
        raise InvalidRequest(f"the header `{name}` must be a number from {low:g} to {high:g}", name)
    return number


def header_whole_number(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], limit: int) -> int | None:
    """Returns the whole number in the first of the named headers that is there, None without any. Raises
    InvalidRequest, which names the header, unless it is one between `-limit` and `limit`."""
    found = _first(headers, names)
    if found is None:
        return None
    name, value = found
    if not _WHOLE.fullmatch(value) or abs(int(value)) >= limit:
        raise InvalidRequest(f"the header `{name}` must be a whole number between -{limit} and {limit}", name)
    return int(value)


def _flow(headers: Mapping[bytes, bytes]) -> str:
    found = _first(headers, _FLOW)
    if found is None:
        return DEFAULT_FLOW
    name, value = found
    if not _FLOW_ID.fullmatch(value):
        raise InvalidRequest(f"the header `{name}` must be 1 to 128 printable ASCII characters without spaces", name)
    return value.decode()
