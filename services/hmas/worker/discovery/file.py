"""Finds engines in a file that is watched."""

import asyncio
import re
from pathlib import Path

import structlog
import yaml
from pydantic import TypeAdapter, ValidationError

from hmas.contracts.ownership import MAX_ENGINES
from hmas.worker.discovery.dns import Found
from hmas.worker.settings import EngineSettings

log = structlog.get_logger()
MAX_FILE_BYTES = 2**20
_URL = re.compile(r"https?://[^\s/]+(/\S*)?")
_ENGINES: TypeAdapter[tuple[EngineSettings, ...]] = TypeAdapter(tuple[EngineSettings, ...])


class EngineFileError(Exception):
    """A file of engines cannot be used; the text says why."""


class FileEngines:
    """Reads a file every `period_s` seconds. A faulty file is told of once, and changes nothing."""

    def __init__(self, path: Path, period_s: float) -> None:
        self._path, self._period_s = path, period_s
        self._text: bytes | None = None
        self._told = ""

    async def run(self, found: Found) -> None:
        while True:
            engines = self.read()
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
            engines = parse_engines(text)
        except (OSError, EngineFileError) as error:
            if str(error) != self._told:
                self._told = str(error)
                log.warning("engine_file_unusable", path=str(self._path), reason=self._told, effect="nothing changes")
            return None
        self._text, self._told = text, ""
        return engines


def parse_engines(text: bytes) -> tuple[EngineSettings, ...]:
    """Returns the engines of a YAML or JSON list of URLs and objects. Raises EngineFileError."""
    if len(text) > MAX_FILE_BYTES:
        raise EngineFileError(f"it is larger than {MAX_FILE_BYTES} bytes")
    try:
        entries = yaml.load(text, Loader=yaml.CSafeLoader)
    except (yaml.YAMLError, ValueError) as error:
        raise EngineFileError(f"it is no valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list) or len(entries) > MAX_ENGINES:
        raise EngineFileError(f"it must be a list of at most {MAX_ENGINES} engines, each a URL or an object with `url`")
    try:
        engines = _ENGINES.validate_python([{"url": each} if isinstance(each, str) else each for each in entries])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise EngineFileError(f"entry {where}: {first['msg']}") from None
    for engine in engines:
        if not _URL.fullmatch(engine.url):
            raise EngineFileError(f"{engine.url!r} is no URL such as http://10.0.0.1:8000")
    names = [engine.label for engine in engines]
    if len(set(names)) < len(names):
        raise EngineFileError("two engines have the same name: set `name`")
    return engines
