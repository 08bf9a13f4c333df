"""A recording of an agent: what it was made of, and each step with its effects, a line of JSON each.

The first line holds the agent's origin, every other one `[now_s, event, [effect, ...]]`. A dataclass is an object with
its class name under `$`, an enumeration's member too, a tuple is an array. A field whose metadata say `private` (a
prompt's text) is written empty: no decision reads it, so that the recording replays all the same.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from hmas.contracts.routes import Role

FORMAT = 1
_SCALARS = frozenset({str, int, float, bool, type(None)})
PRIVATE: Mapping[str, bool] = {"private": True}  # metadata of a field that never leaves its process


class RecordingError(ValueError):
    """A file that is no recording, or holds a class that its agent does not know."""


@dataclass(frozen=True, slots=True)
class AgentOrigin:
    """What an agent was made of. `name` is the process's, `config` what it was told at its start, `seed` that of its
    randomness if it has any."""

    role: Role
    name: str
    config: Any
    seed: int | str | None = None


def origin_line(origin: AgentOrigin) -> str:
    return _line({"format": FORMAT, "origin": plain(origin)})


def step_line(now_s: float, event: object, effects: Sequence[object]) -> str:
    return _line([now_s, plain(event), plain(effects)])


def _line(data: object) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"


def role_of(line: str) -> Role:
    """The role that a recording's first line names. Raises RecordingError."""
    role = restored(_origin(line).get("role"), {Role.__name__: Role})
    if not isinstance(role, Role):
        raise RecordingError("the first line names no role")
    return role


def parse_origin(line: str, classes: Mapping[str, type]) -> AgentOrigin:
    """Raises RecordingError."""
    origin = restored(_origin(line), {**classes, **classes_of(AgentOrigin)})
    assert isinstance(origin, AgentOrigin)
    return origin


def _origin(line: str) -> dict[str, Any]:
    data = _parsed(line)
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("origin"), dict):
        raise RecordingError(f"the first line does not begin a recording of format {FORMAT}")
    return dict(data["origin"])


def parse_step(line: str, classes: Mapping[str, type]) -> tuple[float, Any, list[Any]]:
    """Instant, event and effects. Raises RecordingError."""
    data = _parsed(line)
    if not isinstance(data, list) or len(data) != 3:
        raise RecordingError("a line is not [now_s, event, effects]")
    return float(data[0]), restored(data[1], classes), list(restored(data[2], classes))


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RecordingError(f"a line is no JSON: {error}") from error


# --- values


def plain(value: Any) -> Any:
    """Of dictionaries, lists and scalars only. Raises TypeError for what is neither a contract's value nor a number."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return {"$": kind.__name__, "value": value.value}
    named = _fields(kind)
    if named is not None:
        return {"$": kind.__name__} | {name: "" if private else plain(getattr(value, name)) for name, private in named}
    return float(value)  # a model's own kind of number


def restored(data: Any, classes: Mapping[str, type]) -> Any:
    """The value that `plain` was made of, arrays as tuples. Raises RecordingError."""
    if isinstance(data, list):
        return tuple(restored(item, classes) for item in data)
    if not isinstance(data, dict):
        return data
    cls = classes.get(data.get("$", ""))
    if cls is None:
        raise RecordingError(f"unknown class {data.get('$')!r}")
    values = {name: restored(value, classes) for name, value in data.items() if name != "$"}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise RecordingError(f"{cls.__name__}: {error}") from error


_FIELDS: dict[type, tuple[tuple[str, bool], ...] | None] = {}


def _fields(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Name of each field and whether it is private; None where the class is no dataclass."""
    if kind not in _FIELDS:
        named = tuple((f.name, bool(f.metadata.get("private"))) for f in fields(kind)) if is_dataclass(kind) else None
        _FIELDS[kind] = named
    return _FIELDS[kind]


def mentions(value: Any, name: str) -> bool:
    """Whether a string of a value, however deep in it, is `name`."""
    if isinstance(value, str):
        return value == name
    if isinstance(value, tuple | list):
        return any(mentions(item, name) for item in value)
    named = _fields(type(value))
    return named is not None and any(mentions(getattr(value, field), name) for field, _ in named)


def classes_of(*hints: Any) -> dict[str, type]:
    """The dataclasses and enumerations that values of these types may hold, by name."""
    found: dict[str, type] = {}
    waiting = list(hints)
    while waiting:
        hint = waiting.pop()
        waiting += get_args(hint)
        origin = getattr(hint, "__origin__", hint)  # of a generic dataclass with its parameters
        if not isinstance(origin, type) or origin.__name__ in found:
            continue
        if is_dataclass(origin):
            found[origin.__name__] = origin
            waiting += get_type_hints(origin).values()
        elif issubclass(origin, Enum):
            found[origin.__name__] = origin
    return found
