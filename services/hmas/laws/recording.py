"""The format of an agent's recording: JSON lines with what the agent was made from and each of its steps.

The first line holds the agent's origin, every other line one step: `[now_s, event, [effect, ...]]`. A dataclass and a
member of an enumeration are written as an object with the class name under `$`, a tuple as an array. A field whose
metadata say `private` (a prompt's text) is written empty; no decision reads it, so the recording can still be replayed.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, get_args, get_type_hints

from hmas.contracts.routes import Role

FORMAT = 1
_SCALARS = frozenset({str, int, float, bool, type(None)})
PRIVATE: Mapping[str, bool] = {"private": True}  # metadata of a field that never leaves its process


class RecordingError(ValueError):
    """Raised for a file that is not a valid recording, or that holds a class which its agent does not know."""


@dataclass(frozen=True, slots=True)
class AgentOrigin:
    """What an agent was made from, so that a replay can make it again: its role, the name of its process and its
    configuration."""

    role: Role
    name: str
    config: Any


def origin_line(origin: AgentOrigin) -> str:
    """Returns the first line of a recording."""
    return _line({"format": FORMAT, "origin": plain(origin)})


def step_line(now_s: float, event: object, effects: Sequence[object]) -> str:
    """Returns the line of one step."""
    return _line([now_s, plain(event), plain(effects)])


def _line(data: object) -> str:
    return json.dumps(data, separators=(",", ":")) + "\n"


def role_of(line: str) -> Role:
    """Returns the role of the agent that a recording's first line names. Raises RecordingError if it names none."""
    role = restored(_origin(line).get("role"), {Role.__name__: Role})
    if not isinstance(role, Role):
        raise RecordingError(f"its first line must name an agent's role, not {role!r}: the file is damaged")
    return role


def parse_origin(line: str, classes: Mapping[str, type]) -> AgentOrigin:
    """Reads the origin from a recording's first line; `classes` are those that its config may hold, by name. Raises
    RecordingError if the line is not an origin."""
    origin = restored(_origin(line), {**classes, **classes_of(AgentOrigin)})
    assert isinstance(origin, AgentOrigin)
    return origin


def _origin(line: str) -> dict[str, Any]:
    data = _parsed(line)
    if not isinstance(data, dict) or data.get("format") != FORMAT or not isinstance(data.get("origin"), dict):
        raise RecordingError(
            f"its first line is not that of a recording in format {FORMAT}: give a file that this version recorded"
        )
    return dict(data["origin"])


def parse_step(line: str, classes: Mapping[str, type]) -> tuple[float, Any, list[Any]]:
    """Reads one step: the instant in s, the event and the effects. Raises RecordingError if the line is not a step."""
    data = _parsed(line)
    if not isinstance(data, list) or len(data) != 3:
        raise RecordingError(f"the line {line[:80]!r} is not [now_s, event, effects]: the file is damaged")
    return float(data[0]), restored(data[1], classes), list(restored(data[2], classes))


def _parsed(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise RecordingError(f"the line {line[:80]!r} is not JSON ({error}): the file is damaged") from error


# --- values


def plain(value: Any) -> Any:
    """Returns the value as dictionaries, lists and scalars that JSON can hold. Raises TypeError if it is neither a
    dataclass, an enumeration's member, a tuple, a list nor a scalar."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is tuple or kind is list:
        return [plain(item) for item in value]
    if kind is bytes:
        return {"$": "bytes", "value": b64encode(value).decode()}
    if isinstance(value, Enum):
        return {"$": kind.__name__, "value": value.value}
    named = _fields(kind)
    if named is not None:
        return {"$": kind.__name__} | {name: "" if private else plain(getattr(value, name)) for name, private in named}
    return float(value)  # such as a number of NumPy, which a model returned


def restored(data: Any, classes: Mapping[str, type]) -> Any:
    """Returns the value from which `plain` made the data, with arrays as tuples. Raises RecordingError if the data
    hold a class that is not in `classes`, or fields that do not fit their class."""
    if isinstance(data, list):
        return tuple(restored(item, classes) for item in data)
    if not isinstance(data, dict):
        return data
    if data.get("$") == "bytes":
        return b64decode(data["value"])
    cls = classes.get(data.get("$", ""))
    if cls is None:
        raise RecordingError(f"unknown class {data.get('$')!r}: another version of the program made the recording")
    values = {name: restored(value, classes) for name, value in data.items() if name != "$"}
    try:
        return cls(**values)
    except (TypeError, ValueError) as error:
        raise RecordingError(
            f"recorded fields do not fit {cls.__name__} ({error}): another version of the program made the recording"
        ) from error


_FIELDS: dict[type, tuple[tuple[str, bool], ...] | None] = {}


def _fields(kind: type) -> tuple[tuple[str, bool], ...] | None:
    """Returns the name of each field of a dataclass and whether its metadata say `private`, so that it is recorded
    empty; None for any other class."""
    if kind not in _FIELDS:
        named = tuple((f.name, bool(f.metadata.get("private"))) for f in fields(kind)) if is_dataclass(kind) else None
        _FIELDS[kind] = named
    return _FIELDS[kind]


def mentions(value: Any, name: str) -> bool:
    """Tells whether any string in a value, at any depth, equals `name`."""
    if isinstance(value, str):
        return value == name
    if isinstance(value, tuple | list):
        return any(mentions(item, name) for item in value)
    named = _fields(type(value))
    return named is not None and any(mentions(getattr(value, field), name) for field, _ in named)


def classes_of(*hints: Any) -> dict[str, type]:
    """Returns the dataclasses and enumerations, by name, that values of these types may hold at any depth."""
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
