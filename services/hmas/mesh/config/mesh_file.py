"""Reads the configuration file of `hmas up`. Unknown names and wrong values are errors that name file, line and key."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, YamlConfigSettingsSource

from hmas.mesh.config.flags import UpFlag
from hmas.mesh.config.sections import REQUIRED, SECTIONS, UP, flag_that_sets
from hmas.runtime.bounded_yaml import YamlBounds, YamlDocument, YamlFault, YamlOutline, YamlPath
from hmas.runtime.faulty_settings import wrong_value
from hmas.runtime.settings import REMOVED

MAX_FILE_BYTES = 2**20
MAX_FAULTS = 10  # errors that a message lists
BOUNDS = YamlBounds(depth=4, nodes=4096, aliases=256)
Section = dict[str, Any] | None


class MeshFileFault(ValueError):
    """A configuration file cannot be used; the message names file, line and key, and says what to do."""


@dataclass(frozen=True, slots=True)
class MeshFile:
    """What a configuration file says: the values of flags by the names of their parameters, and the texts of settings
    by section and name, as environment variables would hold them. `places` has the line of each, by section and key."""

    name: str
    flags: Mapping[str, object]
    settings: Mapping[str, Mapping[str, str]]
    places: Mapping[tuple[str, str], int]

    def place(self, section: str, key: str) -> str:
        return f"{self.name}:{self.places[section, key]}"


class _BoundedSource(YamlConfigSettingsSource):
    """pydantic-settings' source for YAML, which reads what is bounded, and keeps where each value stands."""

    document: YamlDocument

    def _read_file(self, file_path: Any) -> dict[str, Any]:
        with file_path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise YamlFault(f"it is larger than {MAX_FILE_BYTES} bytes")
        text = data.decode("utf-8")
        YamlOutline(BOUNDS).read(text)
        self.document = YamlDocument(yaml.SafeLoader(text))
        content = self.document.whole()
        if content is not None and not isinstance(content, dict):
            raise YamlFault(f"it must be a mapping with some of the sections {', '.join((UP, *SECTIONS))}")
        return content or {}


class _Sections(BaseSettings):
    """The whole file: what a section holds is checked one by one."""

    model_config = SettingsConfigDict(extra="forbid")

    up: Section = None
    every_service: Section = None
    gateway: Section = None
    perception: Section = None
    prediction: Section = None
    worker: Section = None
    qos: Section = None
    meta: Section = None
    statera: Section = None
    console: Section = None

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)  # no environment: a variable UP would be none of ours


def read_mesh_file(path: Path, flags: Mapping[str, UpFlag]) -> MeshFile:
    """Returns what a configuration file says; `flags` are those of `hmas up`. Raises MeshFileFault."""
    try:
        if not path.is_file():  # the source would take a missing file for an empty one
            raise MeshFileFault(f"there is no file {path}: correct --config")
        source = _BoundedSource(_Sections, path)
        reading = _Reading(source.document, flags)
        found = reading.file(path.name, source())
    except YamlFault as fault:
        raise MeshFileFault(f"{path}: {fault}") from None
    except RecursionError:
        raise MeshFileFault(f"{path}: it is nested too deeply") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise MeshFileFault(f"{path}: it is not valid YAML: {' '.join(str(error).split())}") from None
    if reading.faults:
        told = [f"{path}, {text}" for _, text in sorted(reading.faults)]
        more = f"; and {len(told) - MAX_FAULTS} more" if len(told) > MAX_FAULTS else ""
        raise MeshFileFault("; ".join(told[:MAX_FAULTS]) + more)
    return found


class _Reading:
    """Checks what stands in a file, and notes each fault with its line."""

    def __init__(self, document: YamlDocument, flags: Mapping[str, UpFlag]) -> None:
        self._document, self._flags = document, flags
        self.faults: list[tuple[int, str]] = []

    def file(self, name: str, content: dict[str, Any]) -> MeshFile:
        for section in [each for each in content if each not in (UP, *SECTIONS)]:
            self._fault((section,), f"there is no such section{_advice(section, (UP, *SECTIONS))}")
        try:
            sections = _Sections(**{n: v for n, v in content.items() if n in (UP, *SECTIONS)}).model_dump()
        except ValidationError as error:
            for fault in error.errors():
                self._fault(fault["loc"][:1], "it must be a mapping of names to values")
            sections = {}
        flags = dict(self._flags_in(sections.get(UP) or {}))
        settings = {each: dict(self._settings_in(each, sections.get(each) or {})) for each in SECTIONS}
        for section, cls in SECTIONS.items():
            self._check(section, cls, settings[section])
        places = {(s, key): self._document.line((s, key)) for s in (UP, *SECTIONS) for key in sections.get(s) or {}}
        return MeshFile(name, flags, settings, places)

    def _fault(self, path: YamlPath, problem: str) -> None:
        self.faults.append((self._document.line(path), self._document.located(path, problem)))

    def _flags_in(self, section: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
        for key, value in section.items():
            flag = self._flags.get(key)
            if flag is None:
                self._fault((UP, key), f"`hmas up` has no such flag{_advice(key, self._flags)}")
                continue
            if value is None:
                continue
            texts = self._texts((UP, key), value)
            if texts is None or (len(texts) != 1 and not flag.many):
                self._fault((UP, key), "it must be " + ("a list of texts" if flag.many else "one value"))
                continue
            try:
                values = [flag.values.validate_python(text) for text in texts]
            except ValidationError as error:
                self._fault((UP, key), wrong_value({**error.errors(include_url=False)[0], "loc": (key,)}))
                continue
            yield flag.parameter, values if flag.many else values[0]

    def _settings_in(self, section: str, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        known = SECTIONS[section].model_fields
        for key, value in given.items():
            flag = flag_that_sets(section, key)
            if key not in known:
                self._fault((section, key), _unknown(section, key))
            elif flag is not None:
                where = f"write `{flag}` in the section {UP}" if flag else "leave it out"
                self._fault((section, key), f"`hmas up` sets it itself: {where}")
            elif value is not None:
                texts = self._texts((section, key), value)
                if texts is None:
                    self._fault((section, key), "it must be one value, or a list of texts without commas")
                else:
                    yield key, ",".join(texts)

    def _texts(self, path: YamlPath, value: Any) -> list[str] | None:
        """Returns a value, or each value of a list, as it is written; None if it is or holds something else."""
        if isinstance(value, list):
            texts = [self._text((*path, index), each) for index, each in enumerate(value)]
            return None if any(text is None or "," in text for text in texts) else [text for text in texts if text]
        text = self._text(path, value)
        return None if text is None else [text]

    def _text(self, path: YamlPath, value: Any) -> str | None:
        if value is None or isinstance(value, dict | list):
            return None
        written = self._document.written(path)
        return (str(value).lower() if isinstance(value, bool) else str(value)) if written is None else written

    def _check(self, section: str, cls: type[BaseSettings], texts: Mapping[str, str]) -> None:
        """Notes what the service itself would refuse of these values, one by one."""
        try:
            cls(**{**REQUIRED.get(section, {}), **texts})
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                if fault["loc"] and fault["loc"][0] in texts:
                    self._fault((section, *fault["loc"]), wrong_value(fault))


def _advice(word: str, known: Mapping[str, object] | tuple[str, ...]) -> str:
    nearest = get_close_matches(word.lower().replace("-", "_"), known, 1)
    return f": did you mean {nearest[0]}?" if nearest else ""


def _unknown(section: str, key: str) -> str:
    """Returns what is said of a key that is no setting of its section."""
    removed = REMOVED.get(f"HMAS_{key}".upper())
    if removed is not None:
        return f"it was removed: {removed}"
    plain = key.lower().removeprefix("hmas_")
    others = [other for other, cls in SECTIONS.items() if plain in cls.model_fields]
    if section in others:
        return f"there is no such setting: did you mean {plain}?"
    if others:
        return f"it is a setting of {' and '.join(others)}: write it there"
    return f"there is no such setting{_advice(plain, dict(SECTIONS[section].model_fields))}"
