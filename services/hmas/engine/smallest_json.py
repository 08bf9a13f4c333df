"""The smallest JSON value that fits a JSON schema: what the emulated engine answers where a client asks for a form.

It knows the keywords that applications use, and refuses a schema with others that would bind a value: an answer that
does not fit is worse than none. A reference inside itself is never followed, because a smallest value has none.
"""

from collections.abc import Mapping
from functools import partial
from math import ceil, floor
from typing import Any

import orjson

MAX_DEPTH = 64  # schemas within one another
MAX_VISITS = 10_000  # of schemas, those in alternatives and behind references too
MAX_LENGTH = 4096  # characters of a text, and elements of a list
MAX_SAFE_INT = 2**53
LEAST_STEP = 1e-6
_REFUSED = (
    "not", "if", "then", "else", "pattern", "dependentRequired", "dependentSchemas", "contains", "unevaluatedItems",
    "unevaluatedProperties", "propertyNames", "minProperties",
)  # fmt: skip
_NOTES = frozenset(
    {"title", "description", "default", "examples", "$defs", "definitions", "$schema", "$id", "$comment"}
)
_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "duration": "P0D",
    "email": "a@b.c",
    "hostname": "a",
    "ipv4": "0.0.0.0",
    "ipv6": "::",
    "time": "00:00:00Z",
    "uri": "a:b",
    "uuid": "00000000-0000-0000-0000-000000000000",
}
_KINDS: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),), "boolean": (bool,), "integer": (int,), "number": (int, float), "string": (str,),
    "array": (list,), "object": (dict,),
}  # fmt: skip


class BadSchema(ValueError):
    """No value can be made for a schema; the message says where and why."""


class _TooLarge(BadSchema):
    """A bound is passed, so that other alternatives are not tried either."""


def smallest_json(schema: object) -> Any:
    """Returns a smallest value that fits a schema. Raises BadSchema."""
    return _Maker(schema).value(schema, "", ())


class _Maker:
    def __init__(self, root: object) -> None:
        self._root = root
        self._visits = 0

    def value(self, schema: object, path: str, refs: tuple[str, ...], depth: int = 0) -> Any:
        self._visits += 1
        if self._visits > MAX_VISITS or depth > MAX_DEPTH:
            raise _TooLarge(f"{path or '/'}: the schema is too large or too deep for the emulated engine")
        if schema is True:
            return None
        if not isinstance(schema, dict):
            raise BadSchema(f"{path or '/'}: a schema must be an object")
        refused = next((word for word in _REFUSED if word in schema), None)
        if refused is not None:
            raise BadSchema(f"{path or '/'}: the emulated engine does not know the keyword `{refused}`")
        if "$ref" in schema:
            return self._referred(schema, path, refs, depth)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return self._joined(word, schema, path, refs, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._listed(schema, path)
        usual = "object" if {"properties", "required"} & schema.keys() else "array" if "items" in schema else "null"
        tries: list[Any] = [partial(self._of_kind, n, schema, path, refs, depth) for n in _kinds(schema, path, [usual])]
        return self._best(tries)

    def _of_kind(self, kind: str, schema: dict[str, Any], path: str, refs: tuple[str, ...], depth: int) -> Any:
        match kind:
            case "null":
                return None
            case "boolean":
                return True  # `false` is longer
            case "string":
                return self._text(schema, path)
            case "array":
                return self._list(schema, path, refs, depth)
            case "object":
                return self._object(schema, path, refs, depth)
            case _:
                return _number(schema, path, whole=kind == "integer")

    def _referred(self, schema: dict[str, Any], path: str, refs: tuple[str, ...], depth: int) -> Any:
        ref, more = schema["$ref"], schema.keys() - _NOTES - {"$ref"}
        if more:
            raise BadSchema(f"{path or '/'}: the emulated engine does not know `{min(more)}` beside `$ref`")
        if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
            raise BadSchema(f"{path or '/'}: `$ref` must name a part of this schema, such as #/$defs/name")
        if ref in refs:
            raise BadSchema(f"{path or '/'}: {ref} refers to itself without an end")
        found: Any = self._root
        for part in ref.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or part not in found:
                raise BadSchema(f"{path or '/'}: {ref} is not in the schema")
            found = found[part]
        return self.value(found, path, (*refs, ref), depth + 1)

    def _joined(self, word: str, schema: dict[str, Any], path: str, refs: tuple[str, ...], depth: int) -> Any:
        parts, more = schema[word], schema.keys() - _NOTES - {word}
        if more:
            raise BadSchema(f"{path or '/'}: the emulated engine does not know `{min(more)}` beside `{word}`")
        if not isinstance(parts, list) or not parts or (word == "allOf" and len(parts) > 1):
            raise BadSchema(f"{path or '/'}: `{word}` must be a list" + (" of one schema" if word == "allOf" else ""))
        inside = [f"{path}/{word}/{number}" for number in range(len(parts))]
        tries = [partial(self.value, part, at, refs, depth + 1) for part, at in zip(parts, inside, strict=True)]
        return self._best(tries)

    def _best(self, tries: list[Any]) -> Any:
        """Returns the shortest of the values that can be made. Raises the first reason why none can."""
        made, reasons = [], []
        for attempt in tries:
            try:
                made.append(attempt())
            except _TooLarge:
                raise
            except BadSchema as bad:
                reasons.append(bad)
        if not made:
            raise reasons[0]
        return min(made, key=lambda value: len(orjson.dumps(value)))

    def _listed(self, schema: dict[str, Any], path: str) -> Any:
        values, names = schema["enum"], _kinds(schema, path, list(_KINDS))
        fit = [v for v in values if any(_is(v, name) for name in names)] if isinstance(values, list) else []
        if not fit:
            raise BadSchema(f"{path or '/'}: `enum` has no value of the type")
        return min(fit, key=lambda value: len(orjson.dumps(value)))

    def _text(self, schema: dict[str, Any], path: str) -> str:
        least, most = _count(schema, "minLength", path), schema.get("maxLength")
        kind = schema.get("format")
        text = _FORMATS.get(kind, "") if isinstance(kind, str) else ""
        if kind is not None and not text:
            raise BadSchema(f"{path or '/'}: the emulated engine does not know the format {str(kind)[:40]!r}")
        if text and len(text) < least:
            raise BadSchema(f"{path or '/'}: the emulated engine makes no longer text of the format {kind}")
        self._visits += least // 64  # what is long costs, too
        text = text or "a" * least
        if isinstance(most, int) and len(text) > most:
            raise BadSchema(f"{path or '/'}: no text has at least {len(text)} and at most {most} characters")
        return text

    def _list(self, schema: dict[str, Any], path: str, refs: tuple[str, ...], depth: int) -> list[Any]:
        least, most, first = _count(schema, "minItems", path), schema.get("maxItems"), schema.get("prefixItems", [])
        if isinstance(most, int) and most < least:
            raise BadSchema(f"{path or '/'}: no list has at least {least} and at most {most} elements")
        if least > 1 and schema.get("uniqueItems"):
            raise BadSchema(f"{path or '/'}: the emulated engine makes no two different elements (`uniqueItems`)")
        kinds = [*first, *[schema.get("items", True)] * max(0, least - len(first))] if isinstance(first, list) else []
        return [self.value(kind, f"{path}/{n}", refs, depth + 1) for n, kind in enumerate(kinds[:least])]

    def _object(self, schema: dict[str, Any], path: str, refs: tuple[str, ...], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties", {}), schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise BadSchema(f"{path or '/'}: `properties` must be an object, and `required` a list of names")
        made = {}
        for name in required:
            if not isinstance(name, str):
                raise BadSchema(f"{path or '/'}: `required` must be a list of names")
            if name not in properties and schema.get("additionalProperties") is False:
                raise BadSchema(f"{path or '/'}: `{name[:80]}` is required and may not be there")
            kind = properties.get(name, schema.get("additionalProperties", True))
            made[name] = self.value(kind, f"{path}/{name[:80]}", refs, depth + 1)
        return made


def _is(value: object, kind: str) -> bool:
    return isinstance(value, _KINDS.get(kind, ())) and (kind == "boolean" or not isinstance(value, bool))


def _count(schema: dict[str, Any], word: str, path: str) -> int:
    value = schema.get(word, 0)
    if not isinstance(value, int) or not 0 <= value <= MAX_LENGTH:
        raise BadSchema(f"{path or '/'}: `{word}` must be a number from 0 to {MAX_LENGTH}")
    return value


def _kinds(schema: dict[str, Any], path: str, usual: list[str]) -> list[str]:
    """Returns the types that a schema names, `usual` if it names none. Raises BadSchema."""
    kinds = schema.get("type", usual)
    names = kinds if isinstance(kinds, list) else [kinds]
    if not names or not all(isinstance(name, str) and name in _KINDS for name in names):
        raise BadSchema(f"{path or '/'}: `type` must be one of {', '.join(_KINDS)}")
    return names


def _number(schema: dict[str, Any], path: str, *, whole: bool) -> int | float:
    """Returns the number nearest to 0 within the bounds: a whole one if there is one, otherwise between the bounds."""
    words = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
    least, above, most, below, multiple = (schema.get(word) for word in words)
    for bound in (least, above, most, below, multiple):
        if bound is not None and (not _is(bound, "number") or abs(bound) > MAX_SAFE_INT):
            raise BadSchema(f"{path or '/'}: the bounds of a number must be numbers up to 2^53")
    step = 1 if multiple is None else multiple
    if step < LEAST_STEP or (whole and step != int(step)):
        raise BadSchema(f"{path or '/'}: `multipleOf` must be at least {LEAST_STEP}, and a whole number for integers")
    lows = [*([] if least is None else [ceil(least / step)]), *([] if above is None else [floor(above / step) + 1])]
    highs = [*([] if most is None else [floor(most / step)]), *([] if below is None else [ceil(below / step) - 1])]
    low, high = max([-MAX_SAFE_INT, *lows]), min([MAX_SAFE_INT, *highs])
    if low <= high:
        value = min(max(0, low), high) * step
        return int(value) if value == int(value) else value
    bottoms, tops = [v for v in (least, above) if v is not None], [v for v in (most, below) if v is not None]
    if not whole and multiple is None and bottoms and tops:
        bottom, top = max(bottoms), min(tops)
        if bottom < top or (bottom == top and above is None and below is None):
            return float(bottom + top) / 2
    raise BadSchema(f"{path or '/'}: no number is within these bounds")
