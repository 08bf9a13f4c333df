"""Finds engines in a file that is watched."""

import asyncio
from pathlib import Path

import structlog
import yaml
from pydantic import TypeAdapter, ValidationError

from hmas.contracts.ownership import MAX_ENGINES
from hmas.runtime.bounded_yaml import YamlBounds, YamlFault, YamlOutline
from hmas.worker.discovery.dns import Found
from hmas.worker.settings import EngineSettings

log = structlog.get_logger()
MAX_FILE_BYTES = 2**20
# An entry of the list is at the depth 2.
BOUNDS = YamlBounds(depth=4, nodes=64 * MAX_ENGINES, aliases=4 * MAX_ENGINES)
_ENGINES: TypeAdapter[tuple[EngineSettings, ...]] = TypeAdapter(tuple[EngineSettings, ...])


class EngineFileError(Exception):
    """A file of engines cannot be used; the text says why."""


class FileEngines:
    """Reads a file every `period_s` seconds, off the event loop. A faulty file is told of once, and changes nothing."""

    def __init__(self, path: Path, period_s: float) -> None:
        self._path, self._period_s = path, period_s
        self._text: bytes | None = None
        self._last_fault = ""

    async def run(self, found: Found) -> None:
        while True:
            engines = await asyncio.to_thread(self.read)
            if engines is not None:
                found(engines)
            await asyncio.sleep(self._period_s)

    def read(self) -> tuple[EngineSettings, ...] | None:
        """Returns the engines if the file has changed since the last call and can be used, otherwise None."""
        try:
            with self._path.open("rb") as file:
                text = file.read(MAX_FILE_BYTES + 1)
            if text == self._text:
                return None
            self._text = text
            engines = parse_engines(text)
        except (OSError, EngineFileError) as error:
            if str(error) != self._last_fault:
                self._last_fault = str(error)
                log.warning(
                    "engine_file_unusable", path=str(self._path), reason=self._last_fault, effect="nothing changes"
                )
            return None
        self._last_fault = ""
        return engines


def parse_engines(text: bytes) -> tuple[EngineSettings, ...]:
    """Returns the engines of a YAML or JSON list of URLs and objects. Raises EngineFileError."""
    if len(text) > MAX_FILE_BYTES:
        raise EngineFileError(f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        lines = YamlOutline(BOUNDS).read(text)
        entries = yaml.load(text, Loader=yaml.CSafeLoader)
    except YamlFault as fault:
        raise EngineFileError(str(fault)) from None
    except (yaml.YAMLError, ValueError, ArithmeticError) as error:
        raise EngineFileError(f"it is not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list) or len(entries) > MAX_ENGINES:
        raise EngineFileError(f"it must be a list of at most {MAX_ENGINES} engines, each a URL or an object with `url`")
    try:
        engines = _ENGINES.validate_python([{"url": each} if isinstance(each, str) else each for each in entries])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        entry, said = int(first["loc"][0]), first["msg"].removeprefix("Value error, ")
        where = ".".join(map(str, first["loc"]))
        raise EngineFileError(f"entry {where} (line {lines[entry]}): {said}") from None
    named: dict[str, int] = {}
    for engine, line in zip(engines, lines, strict=True):
        if (label := engine.label) in named:
            both = f"lines {named[label]} and {line}"
            raise EngineFileError(f"two engines, in {both}, have the same name {label!r}: set `name`")
        named[label] = line
    return engines
