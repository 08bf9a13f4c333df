"""What is in force where a file, the environment and flags say something, and which of them says it."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from hmas.mesh.config.flags import UpFlag
from hmas.mesh.config.mesh_file import MeshFile, MeshFileFault
from hmas.mesh.config.sections import (
    COMMON,
    NATS_LOGIN,
    PASSED_ON,
    PLANNED,
    REQUIRED,
    SECTIONS,
    SERVICES,
    UP,
    VARIABLE_OF_FLAG,
    flag_that_sets,
)
from hmas.runtime.faulty_settings import named_like_a_secret, wrong_value
from hmas.runtime.settings import RuntimeSettings

DEFAULT, BY_UP, MASK = "default", "hmas up", "***"
EMPTY = MeshFile("", {}, {}, {})
_LOGIN = re.compile(r"(?<=://)[^/@\s]+@")
_QUERY = re.compile(r"([?&;][^=&;\s]*(?:key|token|passw|secret|cred|sig)[^=&;\s]*=)[^&;\s]+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ValueInForce:
    """One flag or setting: its section and name, its value for people's eyes, and where that comes from."""

    section: str
    key: str
    value: str
    source: str


def variables(file: MeshFile, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the environment variables that the file adds for each service, those left out that `environ` has."""
    given = {name.upper() for name in environ}
    found = {}
    for service in SERVICES:
        texts = {**file.settings.get(COMMON, {}), **file.settings.get(service, {})}
        named = {f"HMAS_{key}".upper(): text for key, text in texts.items()}
        found[service] = {name: text for name, text in named.items() if name not in given}
    return found


def defaults_of_flags(file: MeshFile, environ: Mapping[str, str]) -> dict[str, object]:
    """Returns what flags are by default: what the file says, or the variable of the same setting if there is one."""
    given = {name.upper(): value for name, value in environ.items()}
    return {name: given.get(VARIABLE_OF_FLAG.get(name, ""), value) for name, value in file.flags.items()}


def check_in_force(file: MeshFile, environ: Mapping[str, str]) -> None:
    """Raises MeshFileFault if a service would refuse what the file and the environment say together."""
    faults = []
    for service, cls in SERVICES.items():
        texts = {key: text for key, (text, _) in _given(service, file, environ).items()}
        try:
            cls(**{**texts, **REQUIRED.get(service, {})})
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                key = str(fault["loc"][0]) if fault["loc"] else ""
                place = _given(service, file, environ)[key][1] if key in texts else service
                faults.append(f"{place}{', ' + key if key in texts else ''}: {wrong_value(fault)}")
    modes = {service: _given(service, file, environ).get("mode", ("schedule", DEFAULT)) for service in SERVICES}
    (gateway, at), (worker, other) = modes["gateway"], modes["worker"]
    if gateway != worker:
        faults.append(f"mode is {gateway} for gateway ({at}) and {worker} for worker ({other}): both need the same")
    if faults:
        raise MeshFileFault("; ".join(dict.fromkeys(faults)))


def values_in_force(
    file: MeshFile, environ: Mapping[str, str], context: typer.Context, known: Mapping[str, UpFlag]
) -> list[ValueInForce]:
    """Returns every flag of `hmas up`, as `context` has it, and every setting of its services. `known` are
    these flags."""
    flags = {value.key: value for value in _flags(file, environ, context, known)}
    found = [*flags.values()]
    planned = bool(context.params.get("plan"))
    embedded = context.params.get("nats_url") is None
    for section, cls in SECTIONS.items():
        given = _given(section, file, environ)
        for key, field in cls.model_fields.items():
            if section != COMMON and key in RuntimeSettings.model_fields and key not in file.settings.get(section, {}):
                continue
            flag = flag_that_sets(section, key)
            if flag is None and ((key in NATS_LOGIN and embedded) or (planned and key in PLANNED.get(section, ()))):
                flag = ""
            if flag is not None:
                said = flags[flag].value if flag in flags else ""
                if not said and flag in PASSED_ON and key in given:
                    found.append(ValueInForce(section, key, shown(key, given[key][0]), given[key][1]))
                    continue
                found.append(ValueInForce(section, key, said, f"{BY_UP}, {flag}" if flag else BY_UP))
                continue
            text, source = given.get(key, (_plain(field.default), DEFAULT))
            found.append(ValueInForce(section, key, shown(key, text), source))
    return found


def _given(section: str, file: MeshFile, environ: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Returns the texts of a section's settings that file or environment give, each with its source."""
    named = {name.upper(): text for name, text in environ.items()}
    found = {}
    for key in SECTIONS[section].model_fields:
        variable = f"HMAS_{key}".upper()
        if variable in named:
            found[key] = named[variable], variable
        else:
            for own in (section, COMMON):
                if key in file.settings.get(own, {}):
                    found[key] = file.settings[own][key], file.place(own, key)
                    break
    return found


def _flags(
    file: MeshFile, environ: Mapping[str, str], context: typer.Context, known: Mapping[str, UpFlag]
) -> Iterator[ValueInForce]:
    named = {name.upper() for name in environ}
    for key, flag in known.items():
        name = flag.parameter
        said, value = context.get_parameter_source(name), context.params.get(name)
        source = "" if said is None else said.name
        if source == "COMMANDLINE":
            told = f"flag --{key.replace('_', '-')}"
        elif source == "ENVIRONMENT":
            told = flag.variable
        elif source == "DEFAULT_MAP":
            variable = VARIABLE_OF_FLAG.get(name, "")
            told = variable if variable in named else file.place(UP, key)
        else:
            told = DEFAULT
        text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else _plain(value)
        yield ValueInForce(UP, key, shown(key, text), told)


def shown(key: str, text: str) -> str:
    """Returns a value without what may be a secret: a login inside a URL, and whatever stands in a setting that is
    named like a secret and is no path of a file."""
    if text and named_like_a_secret(key) and not _names_a_file(text):
        return MASK
    return _QUERY.sub(rf"\1{MASK}", _LOGIN.sub(f"{MASK}@", text))


def _names_a_file(text: str) -> bool:
    try:
        return Path(text).exists()
    except OSError:  # too long for a path
        return False


def _plain(value: Any) -> str:
    if value is None or repr(value) == "PydanticUndefined":
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
