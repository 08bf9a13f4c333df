"""Finds engines in a file that is watched."""

import asyncio
from pathlib import Path

import structlog
import yaml
from pydantic import TypeAdapter, ValidationError

from hmas.contracts.ownership import MAX_ENGINES
from hmas.worker.discovery.dns import Found
from hmas.worker.settings import EngineSettings

log = structlog.get_logger()
MAX_FILE_BYTES = 2**20
MAX_DEPTH = 4  # lists and objects within one another; an entry of the list is at 2
MAX_NODES = 64 * MAX_ENGINES  # texts, numbers, lists and objects of a file
MAX_SHARED = 64  # of what an anchor names
MAX_ALIASES = 4 * MAX_ENGINES
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
        lines = _Outline().read(text)
        entries = yaml.load(text, Loader=yaml.CSafeLoader)
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


class _Outline:
    """What a file of YAML is made of, as its parser tells it before anything is built: from a thousand bytes a document
    could be built that is nested without end, or that has millions of parts by aliases of aliases."""

    def __init__(self) -> None:
        self._depth = self._nodes = self._aliases = 0
        self._shared: tuple[int, int] | None = None  # the depth of what an anchor names, and the node that it begins at
        self._lines: list[int] = []

    def read(self, text: bytes) -> list[int]:
        """Returns the lines at which the entries of the list begin, from 1. Raises EngineFileError where a bound is
        passed, and YAMLError."""
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            if isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent):
                self._node(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                self._depth -= 1
                if self._shared is not None and self._depth == self._shared[0]:
                    self._shared = None
        return self._lines

    def _alias(self, event: yaml.AliasEvent) -> None:
        self._count(event)
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            raise _beyond(event, f"it has more than {MAX_ALIASES} aliases")
        if self._shared is not None:
            raise _beyond(event, "what an anchor names must hold no alias")

    def _node(self, event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> None:
        self._count(event)
        if event.tag is not None:
            raise _beyond(event, f"the tag {event.tag[:64]!r} is of no use here: leave it out")
        begins = isinstance(event, yaml.CollectionStartEvent)
        if event.anchor is not None and begins and self._shared is None:
            self._shared = self._depth, self._nodes
        if begins:
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise _beyond(event, f"it is nested more than {MAX_DEPTH} deep")

    def _count(self, event: yaml.NodeEvent) -> None:
        self._nodes += 1
        if self._depth == 1:
            self._lines.append(_line(event))
        if self._nodes > MAX_NODES:
            raise _beyond(event, f"it has more than {MAX_NODES} values")
        if self._shared is not None and self._nodes - self._shared[1] > MAX_SHARED:
            raise _beyond(event, f"what an anchor names has more than {MAX_SHARED} values")


def _beyond(event: yaml.NodeEvent, reason: str) -> EngineFileError:
    return EngineFileError(f"line {_line(event)}: {reason}")


def _line(event: yaml.Event) -> int:
    return event.start_mark.line + 1 if event.start_mark is not None else 0
