"""The tenants file. Unknown fields and wrong values are errors that name their line and field.

```yaml
classes:                   # the worth of an answer on time to a request of a task type, for all tenants; default 1
  Dialogue: 2              # (the types are those of H-MAS Table 6, and `unknown`)
tenants:
  acme:                    # any text except `other`, under which views count the tenants that they do not list
    weight: 2              # share of the engines, and worth of a request, relative to other tenants; above 0, default 1
    priority_ceiling: -10  # the lowest priority number its requests may ask for; lower is served earlier; default 0
    slo: {ttft_ms: 2000, tpot_ms: 60, ttlt_ms: 60000}  # for its requests, each optional; headers outrank them
    slo_min: {ttft_ms: 500, tpot_ms: 20}  # the strictest SLOs that headers may state; stricter ones become these
    slo_max: {ttft_ms: 30000}             # the laxest
    importance: 0.9        # 0.5 to 1, scales the task types' SLOs (Eq. 14); default 0.75
    requests_per_min: 600
    tokens_per_min: 1000000
    max_in_flight: 64
    max_queued: 32         # requests that may wait for their first byte
    on_miss: relegate      # or refuse: a request that cannot be on time is refused instead of served late
    models: [llama]        # default: all
    allowed_body_fields: [cache_salt]  # of those that steer an engine; default: none
    keys:                  # made by `hmas keys make`
      - {id: 5f2c91, name: laptop, sha256: 9f86d0..., created: 2026-11-20, expires: 2027-11-20T00:00:00Z}
```
"""

from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from hashlib import sha256
from math import inf
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError
from pydantic_core import ErrorDetails

from hmas.contracts.gateway import ClassWeight, TenantLimits
from hmas.contracts.request import TaskType
from hmas.gateway.openai.steering import STEERING_FIELDS
from hmas.gateway.openai.tiers import PRIORITY_LIMIT
from hmas.gateway.tenants.terms import (
    MAX_IMPORTANCE,
    MAX_SLO_MS,
    MAX_TTLT_MS,
    MIN_IMPORTANCE,
    SloBounds,
    Tenant,
)
from hmas.runtime.bounded_yaml import YamlDocument, YamlPath

MAX_FAULTS = 10  # errors of one file that a message lists
KEY_PREFIX = "hmas-"
MAX_KEY_BYTES = 256
RESERVED_NAME = "other"  # of views, metrics and records of use, for the tenants that they do not list


class TenantFileError(ValueError):
    """The tenants file is invalid, or cannot be edited. The message names the place and what is expected there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantKey:
    """An API key: its tenant, its public id and name, and its SHA-256. From the Unix instant `expires_s` on it is no
    longer valid."""

    tenant: str
    id: str
    name: str
    created: str
    digest: bytes
    expires_s: float = inf


@dataclass(frozen=True, slots=True)
class TenantTable:
    """The contents of a tenants file: tenants by name, API keys by their SHA-256 digest, and weights of task types."""

    tenants: dict[str, Tenant] = field(default_factory=dict)
    keys: dict[bytes, TenantKey] = field(default_factory=dict)
    classes: tuple[ClassWeight, ...] = ()

    def find(self, key: bytes) -> TenantKey | None:
        """Returns the entry of an API key, or None if the key is unknown.

        The time this takes does not tell an attacker how much of a guessed key is right, because the look-up is by the
        key's digest.
        """
        return self.keys.get(sha256(key).digest())

    def limits(self) -> tuple[TenantLimits, ...]:
        return tuple(tenant.limits for tenant in self.tenants.values())


# --- the fields of the file; one that is left out is None ---


def _number(low: float, high: float, *, whole: bool = False) -> PlainValidator:
    def check(value: Any) -> float | int:
        allowed = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed) or not low <= value <= high:
            raise ValueError(f"must be a {'whole ' if whole else ''}number from {low:g} to {high:g}, not {value!r:.40}")
        return value

    return PlainValidator(check)


def _classes(value: Any) -> tuple[ClassWeight, ...]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping of task types to weights, not {value!r:.40}")
    weights = []
    for name, weight in value.items():
        if name not in set(TaskType):
            raise ValueError(f"`{name!s:.40}` is not a task type: choose one of {', '.join(TaskType)}")
        if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0.001 <= weight <= 1_000_000:
            raise ValueError(f"the weight of {name} must be a number from 0.001 to 1e+06, not {weight!r:.40}")
        weights.append(ClassWeight(TaskType(name), float(weight)))
    return tuple(weights)


def _models(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(f"must be a list of model names (leave it out to allow all), not {value!r:.40}")
    return frozenset(value)


def _digest(value: Any) -> bytes:
    try:
        digest = bytes.fromhex(value)
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != 32:
        raise ValueError("must be the SHA-256 of an API key, 64 hexadecimal digits (quote it if all are decimal)")
    return digest


def _instant(value: Any) -> float:
    """Returns the Unix time of a date or an instant, which is in UTC unless it says otherwise."""
    try:
        if isinstance(value, str):
            value = datetime.fromisoformat(value)
        elif isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        instant = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return float(instant.timestamp())
    except (ValueError, AttributeError, OverflowError):
        raise ValueError(f"must be a date or an instant such as 2027-01-31T12:00:00Z, not {value!r:.40}") from None


def _steering(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(each in STEERING_FIELDS for each in map(str, value)):
        raise ValueError(f"must be a list of some of: {', '.join(STEERING_FIELDS)}")
    return frozenset(map(str, value))


def _text(value: Any) -> str:
    """Returns a text, which YAML may have read as a number or a date, and "" for one that was left blank."""
    if isinstance(value, dict | list):
        raise ValueError(f"must be a text, not {value!r:.40}")
    return "" if value is None else str(value)


def _id(value: Any) -> str:
    if not (text := _text(value)):
        raise ValueError("must be a text that is not empty")
    return text


Text = Annotated[str, PlainValidator(_text)]
SloMs = Annotated[float | None, _number(0.001, MAX_SLO_MS)]
Count = Annotated[int | None, _number(0, 1e9, whole=True)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _KeySection(_Section):
    id: Annotated[str, PlainValidator(_id)]
    sha256: Annotated[bytes, PlainValidator(_digest)]
    name: Text = ""
    created: Text = ""
    expires: Annotated[float, PlainValidator(_instant)] = inf


class _SloSection(_Section):
    ttft_ms: SloMs = None
    tpot_ms: SloMs = None
    ttlt_ms: Annotated[float | None, _number(0.001, MAX_TTLT_MS)] = None


class _TenantSection(_Section):
    weight: Annotated[float | None, _number(0.001, 1_000_000)] = None
    priority_ceiling: Annotated[int | None, _number(-PRIORITY_LIMIT, PRIORITY_LIMIT, whole=True)] = None
    slo: _SloSection | None = None
    slo_min: _SloSection | None = None
    slo_max: _SloSection | None = None
    importance: Annotated[float | None, _number(MIN_IMPORTANCE, MAX_IMPORTANCE)] = None
    requests_per_min: Annotated[float | None, _number(0, 1e9)] = None
    tokens_per_min: Annotated[float | None, _number(0, 1e12)] = None
    max_in_flight: Count = None
    max_queued: Count = None
    on_miss: Literal["relegate", "refuse"] = "relegate"
    models: Annotated[frozenset[str] | None, PlainValidator(_models)] = None
    allowed_body_fields: Annotated[frozenset[str] | None, PlainValidator(_steering)] = None
    keys: list[_KeySection] | None = None

    def tenant(self, name: str) -> Tenant:
        slo = self.slo or _SloSection()
        passed = {"weight", "priority_ceiling", "importance", "models", "allowed_body_fields"}
        bounds = ("requests_per_min", "tokens_per_min", "max_in_flight", "max_queued")
        return Tenant(
            name=name,
            ttft_s=_seconds(slo.ttft_ms),
            tpot_s=_seconds(slo.tpot_ms),
            ttlt_s=_seconds(slo.ttlt_ms),
            relegate=self.on_miss == "relegate",
            limits=TenantLimits(tenant=name, **self.model_dump(include=set(bounds))),
            slo_bounds=self.slo_bounds(),
            **self.model_dump(include=passed, exclude_none=True),
        )

    def slo_bounds(self) -> SloBounds:
        """Returns the bounds of stated SLOs. Raises ValueError if one excludes every value."""
        low, high = self.slo_min or _SloSection(), self.slo_max or _SloSection()
        pairs = [(getattr(low, name), getattr(high, name)) for name in _SloSection.model_fields]
        for name, (least, most) in zip(_SloSection.model_fields, pairs, strict=True):
            if least is not None and most is not None and least > most:
                raise ValueError(f"`{name}` is {most:g}, below that of `slo_min`, which is {least:g}")
        return SloBounds(*((_seconds(least), _seconds(most)) for least, most in pairs))


class _TenantsFile(_Section):
    classes: Annotated[tuple[ClassWeight, ...], PlainValidator(_classes)] = ()
    tenants: dict[str, _TenantSection | None] | None = None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0


# --- reading ---

# The section that a field belongs to, by the length of the field's path.
_SECTIONS: dict[int, type[_Section]] = {1: _TenantsFile, 3: _TenantSection, 4: _SloSection, 5: _KeySection}


def parse_tenants(text: str) -> TenantTable:
    """Returns the tenants and API keys of a file's text. Raises TenantFileError if the text is not valid."""
    try:
        return _parse(text)
    except yaml.YAMLError as error:
        raise TenantFileError(f"not valid YAML: {error}") from None
    except RecursionError:
        raise TenantFileError("it is nested too deeply: a tenants file has at most five levels") from None


def _parse(text: str) -> TenantTable:
    document = _Document(yaml.SafeLoader(text))
    try:
        plain = document.whole()
        file = _TenantsFile.model_validate({} if plain is None else plain)
    except ValidationError as error:
        raise TenantFileError(document.faults(error)) from None
    tenants: dict[str, Tenant] = {}
    keys: dict[bytes, TenantKey] = {}
    ids: set[str] = set()
    for name, section in (file.tenants or {}).items():
        if name == RESERVED_NAME:
            problem = "views and metrics count under this name the tenants that they do not list: choose another name"
            raise document.fault(("tenants", name), problem)
        section = section or _TenantSection()
        try:
            tenants[name] = section.tenant(name)
        except ValueError as error:
            raise document.fault(("tenants", name, "slo_max"), str(error)) from None
        for index, key in enumerate(section.keys or ()):
            if key.sha256 in keys or key.id in ids:
                raise document.fault(
                    ("tenants", name, "keys", index),
                    f"the id or sha256 of key `{key.id}` is in the file twice: remove one",
                )
            ids.add(key.id)
            keys[key.sha256] = TenantKey(
                tenant=name, id=key.id, name=key.name, created=key.created, digest=key.sha256, expires_s=key.expires
            )
    return TenantTable(tenants, keys, file.classes)


class _Document(YamlDocument):
    """The document of a tenants file, with its errors."""

    def fault(self, path: YamlPath, problem: str) -> TenantFileError:
        return TenantFileError(self.located(path, problem))

    def faults(self, error: ValidationError) -> str:
        """Returns the errors that come first in the file, at most MAX_FAULTS, as one line."""
        told = [(self.line(each["loc"]), self.located(*_problem(each))) for each in error.errors()]
        return "; ".join(list(dict.fromkeys(text for _, text in sorted(told)))[:MAX_FAULTS])


def _problem(error: ErrorDetails) -> tuple[YamlPath, str]:
    """Returns the place of an error and a message about it in terms of the tenants file."""
    path, kind = error["loc"], error["type"]
    if kind == "value_error":
        return path, str(error["ctx"]["error"])
    if kind == "extra_forbidden":
        return path, f"unknown field: the fields here are {', '.join(sorted(_SECTIONS[len(path)].model_fields))}"
    if kind == "missing":
        return path[:-1], "an API key needs the fields `id` and `sha256`, as `hmas keys make` writes them"
    if kind == "literal_error":
        return path, "must be `relegate` or `refuse`"
    if kind == "list_type":
        return path, "must be a list of API keys, as `hmas keys make` writes it"
    return path, "must be a mapping of names to values"
