"""The terms of a request: SLO, priority, importance and flow, from its headers, its tenant and the defaults.

Most headers have two spellings; llm-d's outranks the other. Headers outrank the tenant's defaults, and these outrank
the default SLOs of H-MAS Table 6.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.request import Slo, TaskType
from hmas.gateway.openai.errors import InvalidRequest
from hmas.laws.slo import DEFAULT_IMPORTANCE, default_slo

MAX_SLO_MS = 3_600_000.0  # an hour
MAX_TTLT_MS = 24 * MAX_SLO_MS
MIN_IMPORTANCE, MAX_IMPORTANCE = 0.5, 1.0  # Eq. 14
PRIORITY_LIMIT = 2**31
DEFAULT_FLOW = "default"

_TTFT = (b"x-llm-d-slo-ttft-ms", b"x-slo-ttft-ms")
_TPOT = (b"x-llm-d-slo-tpot-ms", b"x-slo-tpot-ms")
_TTLT = (b"x-llm-d-slo-ttlt-ms", b"x-slo-ttlt-ms")
_PRIORITY = (b"x-llm-d-priority", b"x-priority")
_FLOW = (b"x-llm-d-inference-fairness-id", b"x-gateway-inference-fairness-id")
_IMPORTANCE = (b"x-hmas-importance",)
_EDGE = (b"authorization", b"content-length", b"x-request-id", b"traceparent")
_READ = frozenset((*_EDGE, *_TTFT, *_TPOT, *_TTLT, *_PRIORITY, *_FLOW, *_IMPORTANCE))

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:\-]{1,128}")
_FLOW_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A tenant and the defaults of its requests; SLOs in seconds, None: not set.

    `priority_ceiling`: the lowest priority number its requests may ask for (lower is served earlier). `models`: the
    models it may use, None: all. `relegate`: whether a request that cannot be on time is served late (true) or refused.
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
    limits: TenantLimits = field(default_factory=lambda: TenantLimits(tenant=""))


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    slo: Slo
    slo_stated: bool
    priority: int
    importance: float
    flow: str


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Returns the headers that the gateway uses, by name in lower case. If one is repeated, its first value counts."""
    headers: dict[bytes, bytes] = {}
    for name, value in raw:
        if name in _READ:
            headers.setdefault(name, value)
    return headers


def client_request_id(headers: Mapping[bytes, bytes]) -> str | None:
    """Returns the client's `X-Request-Id` if it consists of 1-128 of the characters A-Z a-z 0-9 . _ : -"""
    value = headers.get(b"x-request-id")
    return value.decode() if value is not None and _REQUEST_ID.fullmatch(value) else None


def traceparent(headers: Mapping[bytes, bytes]) -> str:
    """Returns the header `traceparent` (W3C trace context), or "" if it is missing or malformed."""
    value = headers.get(b"traceparent")
    return value.decode() if value is not None and _TRACEPARENT.fullmatch(value) else ""


def terms_of(headers: Mapping[bytes, bytes], tenant: Tenant, body_priority: int | None, *, stream: bool) -> Terms:
    """Returns the terms of a request. A priority in the headers outranks the one in the body.

    Raises InvalidRequest, which names the header, if a header's value is out of its range.
    """
    importance = _number(headers, _IMPORTANCE, MIN_IMPORTANCE, MAX_IMPORTANCE)
    if importance is None:
        importance = tenant.importance
    slo, stated = _slo(headers, tenant, importance, stream=stream)
    priority = _priority(headers)
    if priority is None:
        priority = body_priority or 0
    return Terms(
        slo=slo,
        slo_stated=stated,
        priority=max(priority, tenant.priority_ceiling),
        importance=importance,
        flow=_flow(headers),
    )


def _slo(headers: Mapping[bytes, bytes], tenant: Tenant, importance: float, *, stream: bool) -> tuple[Slo, bool]:
    """Returns the SLO, and whether the client or the tenant stated it. Only the time of the last token is judged
    (`whole`) if the answer is not streamed, or if a TTLT alone is stated."""
    ttft_s = _seconds(headers, _TTFT, MAX_SLO_MS)
    tpot_s = _seconds(headers, _TPOT, MAX_SLO_MS)
    ttlt_s = _seconds(headers, _TTLT, MAX_TTLT_MS)
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


def _seconds(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], limit_ms: float) -> float | None:
    milliseconds = _number(headers, names, 0.001, limit_ms)
    return None if milliseconds is None else milliseconds / 1000.0


def _number(headers: Mapping[bytes, bytes], names: tuple[bytes, ...], low: float, high: float) -> float | None:
    found = _first(headers, names)
    if found is None:
        return None
    name, value = found
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not (isfinite(number) and low <= number <= high):
        raise InvalidRequest(f"the header `{name}` must be a number from {low:g} to {high:g}", name)
    return number


def _priority(headers: Mapping[bytes, bytes]) -> int | None:
    found = _first(headers, _PRIORITY)
    if found is None:
        return None
    name, value = found
    if not re.fullmatch(rb"-?[0-9]{1,10}", value) or abs(int(value)) >= PRIORITY_LIMIT:
        message = f"the header `{name}` must be a whole number between -2^31 and 2^31; lower is served earlier"
        raise InvalidRequest(message, name)
    return int(value)


def _flow(headers: Mapping[bytes, bytes]) -> str:
    found = _first(headers, _FLOW)
    if found is None:
        return DEFAULT_FLOW
    name, value = found
    if not _FLOW_ID.fullmatch(value):
        raise InvalidRequest(f"the header `{name}` must be 1 to 128 printable ASCII characters without spaces", name)
    return value.decode()
