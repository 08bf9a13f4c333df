"""What a service that cannot start says of its settings. The message goes to stderr and into logs, so that it names the
setting, and repeats nothing that may be a secret."""

import os
import re
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

MAX_ECHO_CHARS = 40  # of a wrong value that is repeated
# Kinds of faults whose value is a number, a switch or one word of a list: others may hold a password, such as a URL.
_ECHOED = re.compile(r"(int|float|bool)_(parsing|type)|int_from_float|literal_error|(greater|less)_than(_equal)?")
_SECRET = re.compile(r"key|token(?!s)|passw|secret|cred", re.IGNORECASE)


def wrong_settings(error: ValidationError) -> str:
    """Returns one line that names the environment variables whose values are not valid, and says why. It repeats a
    short value of a plain kind, and never that of an unknown field or of one that is named like a secret."""
    found = []
    for fault in error.errors(include_url=False, include_context=False):
        path = fault["loc"]
        variable = f"HMAS_{path[0]}".upper() if path else "settings"
        inner = "".join(f"[{part}]" for part in path[1:])
        if fault["type"] == "extra_forbidden":
            found.append(f"{variable}{inner}: {_unknown_field(str(path[-1]))}")
            continue
        found.append(f"{variable}{inner}: {wrong_value(fault)}")
    return "; ".join(found)


def wrong_value(fault: ErrorDetails) -> str:
    """Returns what is wrong with a value, which is repeated if it is short and of a plain kind."""
    plain = _ECHOED.fullmatch(fault["type"]) and not any(named_like_a_secret(str(part)) for part in fault["loc"])
    given, echo = fault["input"], ""
    if plain and isinstance(given, str) and len(given) <= MAX_ECHO_CHARS:
        echo = f", not {given!r}"
    return f"{' '.join(fault['msg'].split())}{echo}"


def named_like_a_secret(name: str) -> bool:
    return _SECRET.search(name) is not None


def _unknown_field(name: str) -> str:
    advice = "there is no such field: correct its name, or leave it out"
    return f"{advice}; a secret is given in a file, by a field such as api_key_file" if _SECRET.search(name) else advice


def unusable_file(error: OSError, settings: BaseModel | None) -> str:
    """Returns one line about a file that cannot be used. If a setting that is named like a secret names no file, the
    secret itself may stand there, so that the line has the setting's name and not its value."""
    name = str(error.filename or "")
    if settings is None or not name or os.path.exists(name):  # Path.exists would raise where a name is too long
        return str(error)
    for variable, value in _values(settings.model_dump()):
        listed = isinstance(value, str) and value.lstrip().startswith("[")  # a list of objects that is read later
        if (_SECRET.search(variable) and str(value) == name) or (listed and name in value):
            return f"{variable}: {error.strerror}: it must be the path of a file"
    return str(error)


def _values(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields what a setting holds, with its variable and the path inside it."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _values(inner, f"{name}[{key}]" if name else f"HMAS_{key}".upper())
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _values(inner, f"{name}[{index}]")
    else:
        yield name, value
