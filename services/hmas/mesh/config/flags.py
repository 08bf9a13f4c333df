"""The flags of `hmas up` that a configuration file may set, read from the command's own signature."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any, get_args

from pydantic import Field, TypeAdapter
from typer.models import OptionInfo


@dataclass(frozen=True, slots=True)
class UpFlag:
    """One flag: its name in a file (that of the command line, without dashes), its parameter, and which values it
    takes; `many`: a list of them."""

    name: str
    parameter: str
    values: TypeAdapter[Any]
    many: bool
    description: str
    variable: str  # "" if none gives it a value


def flags_of(command: Callable[..., None]) -> Mapping[str, UpFlag]:
    """Returns the flags of `hmas up`, whose function is `command`, by their names in a file."""
    found = {}
    for name, parameter in signature(command).parameters.items():
        kind, *infos = get_args(parameter.annotation) or (None,)
        info = next((each for each in infos if isinstance(each, OptionInfo)), None)
        if info is None or name == "config":
            continue
        # In an annotation the first word of an Option is, to Typer, still its default.
        words = [word for word in (info.default, *(info.param_decls or ())) if isinstance(word, str)]
        long = next((word for word in words if word.startswith("--")), name)
        in_file = long.partition("/")[0].lstrip("-").replace("-", "_")
        one = next((each for each in (*get_args(kind), kind) if each is not type(None)), kind)
        many = one is list or getattr(one, "__origin__", None) is list
        one = get_args(one)[0] if many else one
        bounds: dict[str, Any] = {"ge": info.min, "le": info.max}
        annotated: Any = Annotated
        field = Field(**{word: bound for word, bound in bounds.items() if bound is not None})
        adapter: TypeAdapter[Any] = TypeAdapter(annotated[one, field])
        found[in_file] = UpFlag(in_file, name, adapter, many, info.help or "", str(info.envvar or ""))
    return found
