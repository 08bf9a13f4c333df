"""The tenants file: strictly read, every fault with its line and field.

```yaml
tenants:
  acme:
    weight: 2              # share of the engines relative to other tenants; above 0, default 1
    priority_ceiling: -10  # earliest priority its requests may ask for, lower is earlier; default 0
    slo: {ttft_ms: 2000, tpot_ms: 60, ttlt_ms: 60000}  # of its requests, each optional; headers outrank them
    importance: 0.9        # 0.5 to 1, scales the task types' SLOs (Eq. 14); default 0.75
    requests_per_min: 600
    tokens_per_min: 1000000
    max_in_flight: 64
    max_queued: 32         # requests that may wait for their first byte
    on_miss: relegate      # or refuse: rather no answer than a late one
    models: [llama]        # default: all
    keys:                  # made by `hmas keys make`
      - {id: 5f2c91, name: laptop, sha256: 9f86d0..., created: 2026-11-20}
```
"""

import hmac
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import yaml

from hmas.contracts.gateway import TenantLimits
from hmas.gateway.tenants.terms import MAX_IMPORTANCE, MAX_SLO_MS, MAX_TTLT_MS, MIN_IMPORTANCE, PRIORITY_LIMIT, Tenant

KEY_PREFIX = "hmas-"
MAX_KEY_BYTES = 256


class TenantFileError(ValueError):
    """The file cannot be used. The message says where and what was expected."""


@dataclass(frozen=True, slots=True)
class TenantKey:
    tenant: str
    id: str
    name: str
    created: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class TenantTable:
    """Tenants by name and keys by their SHA-256 digest."""

    tenants: dict[str, Tenant] = field(default_factory=dict)
    keys: dict[bytes, TenantKey] = field(default_factory=dict)

    def tenant_of(self, key: bytes) -> Tenant | None:
        """Whose key this is. The lookup is by digest, which tells nothing of the key; the last comparison takes the
        same time wherever digests differ."""
        digest = sha256(key).digest()
        found = self.keys.get(digest)
        if found is None or not hmac.compare_digest(found.digest, digest):
            return None
        return self.tenants[found.tenant]

    def limits(self) -> tuple[TenantLimits, ...]:
        return tuple(tenant.limits for tenant in self.tenants.values())


def parse_tenants(text: str) -> TenantTable:
    """Raises TenantFileError."""
    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        raise TenantFileError(f"not valid YAML: {error}") from None
    reader = _Reader(loader)
    tenants: dict[str, Tenant] = {}
    keys: dict[bytes, TenantKey] = {}
    for name, node in reader.fields(root, "", {"tenants"}):
        for tenant, body in reader.fields(node, name, None):
            tenants[tenant] = reader.tenant(tenant, body)
            for key, key_node in reader.keys(tenant, body):
                if key.digest in keys or any(key.id == other.id for other in keys.values()):
                    raise _fault(key_node, f"tenants.{tenant}.keys", f"key `{key.id}` stands here twice")
                keys[key.digest] = key
    return TenantTable(tenants, keys)


def _fault(node: yaml.Node, where: str, problem: str) -> TenantFileError:
    return TenantFileError(f"line {node.start_mark.line + 1}, {where or 'top level'}: {problem}")


def _number(low: float, high: float, *, whole: bool = False) -> Callable[[Any], float | int]:
    def check(value: Any) -> float | int:
        allowed = int if whole else (int, float)
        if isinstance(value, bool) or not isinstance(value, allowed) or not low <= value <= high:
            raise ValueError(f"must be a {'whole ' if whole else ''}number from {low:g} to {high:g}, not {value!r:.40}")
        return value

    return check


def _choice(*options: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in options:
            raise ValueError(f"must be one of {', '.join(options)}")
        return str(value)

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text")
    return value


def _models(value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("must be a list of model names")
    return frozenset(value)


def _sha256(value: Any) -> bytes:
    try:
        digest = bytes.fromhex(value)
    except (TypeError, ValueError):
        digest = b""
    if len(digest) != 32:
        raise ValueError("must be the SHA-256 of a key, 64 hexadecimal digits (quote it if they are all decimal)")
    return digest


_TENANT_FIELDS: dict[str, Callable[[Any], Any]] = {
    "weight": _number(0.001, 1_000_000),
    "priority_ceiling": _number(-PRIORITY_LIMIT, PRIORITY_LIMIT, whole=True),
    "importance": _number(MIN_IMPORTANCE, MAX_IMPORTANCE),
    "requests_per_min": _number(0, 1e9),
    "tokens_per_min": _number(0, 1e12),
    "max_in_flight": _number(0, 1e9, whole=True),
    "max_queued": _number(0, 1e9, whole=True),
    "on_miss": _choice("relegate", "refuse"),
    "models": _models,
}
_SLO_FIELDS: dict[str, Callable[[Any], Any]] = {
    "ttft_ms": _number(0.001, MAX_SLO_MS),
    "tpot_ms": _number(0.001, MAX_SLO_MS),
    "ttlt_ms": _number(0.001, MAX_TTLT_MS),
}
_KEY_FIELDS: dict[str, Callable[[Any], Any]] = {"id": str, "name": str, "created": str, "sha256": _sha256}


class _Reader:
    """Walks the node tree, which still knows its lines."""

    def __init__(self, loader: yaml.SafeLoader) -> None:
        self._loader = loader

    def fields(self, node: yaml.Node | None, where: str, allowed: set[str] | None) -> Iterator[tuple[str, yaml.Node]]:
        """The entries of a mapping; nothing for an empty document or null. `allowed` None: any name."""
        if node is None or (isinstance(node, yaml.ScalarNode) and self._value(node) is None):
            return
        if not isinstance(node, yaml.MappingNode):
            raise _fault(node, where, "must be a mapping of names to values")
        self._loader.flatten_mapping(node)
        seen: set[str] = set()
        for key_node, value_node in node.value:
            name = self._value(key_node)
            inside = f"{where}.{name}" if where else str(name)
            if not isinstance(name, str) or not name:
                raise _fault(key_node, inside, "a name must be a text (quote it)")
            if name in seen:
                raise _fault(key_node, inside, "stands here twice")
            if allowed is not None and name not in allowed:
                raise _fault(key_node, inside, f"unknown field; known are {', '.join(sorted(allowed))}")
            seen.add(name)
            yield name, value_node

    def tenant(self, name: str, node: yaml.Node) -> Tenant:
        where = f"tenants.{name}"
        fields = dict(self.fields(node, where, {*_TENANT_FIELDS, "slo", "keys"}))
        slo = self._values(fields.get("slo"), f"{where}.slo", _SLO_FIELDS)
        values = {
            f: self._checked(each, f"{where}.{f}", _TENANT_FIELDS[f])
            for f, each in fields.items()
            if f in _TENANT_FIELDS
        }
        bounds = ("requests_per_min", "tokens_per_min", "max_in_flight", "max_queued")
        return Tenant(
            name=name,
            ttft_s=_seconds(slo.get("ttft_ms")),
            tpot_s=_seconds(slo.get("tpot_ms")),
            ttlt_s=_seconds(slo.get("ttlt_ms")),
            relegate=values.get("on_miss") != "refuse",
            limits=TenantLimits(name, **{bound: values.get(bound) for bound in bounds}),
            **{f: values[f] for f in ("weight", "priority_ceiling", "importance", "models") if f in values},
        )

    def keys(self, tenant: str, node: yaml.Node) -> Iterator[tuple[TenantKey, yaml.Node]]:
        where = f"tenants.{tenant}.keys"
        for name, value_node in self.fields(node, f"tenants.{tenant}", None):
            if name != "keys" or (isinstance(value_node, yaml.ScalarNode) and self._value(value_node) is None):
                continue
            if not isinstance(value_node, yaml.SequenceNode):
                raise _fault(value_node, where, "must be a list of keys, as `hmas keys make` writes it")
            for item in value_node.value:
                values = self._values(item, where, _KEY_FIELDS)
                if "id" not in values or "sha256" not in values:
                    raise _fault(item, where, "a key needs `id` and `sha256`")
                key = TenantKey(
                    tenant, values["id"], values.get("name", ""), values.get("created", ""), values["sha256"]
                )
                yield key, item

    def _values(self, node: yaml.Node | None, where: str, checks: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
        """A mapping's checked entries."""
        return {f: self._checked(each, f"{where}.{f}", checks[f]) for f, each in self.fields(node, where, set(checks))}

    def _checked(self, node: yaml.Node, where: str, check: Callable[[Any], Any]) -> Any:
        try:
            return check(self._value(node))
        except ValueError as error:
            raise _fault(node, where, str(error)) from None

    def _value(self, node: yaml.Node) -> Any:
        try:
            return self._loader.construct_object(node, deep=True)
        except yaml.YAMLError as error:
            raise _fault(node, "", str(error)) from None


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000.0
