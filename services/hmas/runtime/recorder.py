"""Records the steps of a running agent: the last ones in memory and, if `HMAS_RECORD_DIR` is set, all in a file.

The ring in memory keeps references alone, so that a step costs one append; replies from it are encoded in a thread. The
file costs the encoding of every step.
"""

import asyncio
import json
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TextIO

import structlog
from google.protobuf.message import DecodeError

from hmas.laws.recording import AgentOrigin, mentions, origin_line, plain, step_line
from hmas.runtime.ids import incarnation
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.v1 import observe_pb2 as pb

log = structlog.get_logger()
MAX_REPLY_BYTES = 512 * 1024  # half of the largest message that a NATS server accepts by default

Steps = Sequence[tuple[float, Any, Sequence[Any]]]


class Recorder:
    """Records the steps of one agent. `observe` is passed to `AgentHost`, `answer` to the bus; `close` must be called
    at the end.

    Raises OSError if the folder `record_dir` cannot be written. If writing fails later, or the file reaches
    `record_max_bytes`, the recording ends there; what is in the file can still be replayed.
    """

    def __init__(
        self, origin: AgentOrigin, settings: RuntimeSettings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._origin = origin
        self._clock = clock
        self._ring: deque[tuple[float, Any, Sequence[Any]]] = deque(maxlen=settings.record_steps)
        self._file: TextIO | None = None
        self._room = settings.record_max_bytes
        if settings.record_dir is not None:
            self._file = _create(settings.record_dir, f"{origin.name}-{incarnation()}.jsonl")
            self._write(origin_line(origin))

    def observe(self, now_s: float, event: Any, effects: Sequence[Any]) -> None:
        self._ring.append((now_s, event, effects))
        if self._file is not None:
            try:
                self._write(step_line(now_s, event, effects))
            except (TypeError, ValueError) as error:
                self._stop(f"{type(event).__name__}: {error}")

    async def answer(self, data: bytes) -> bytes | None:
        """Returns the reply to an `EffectsRequest`: the remembered steps that mention its request. None if `data` is
        not such a message."""
        try:
            query = pb.EffectsRequest.FromString(data)
        except DecodeError:
            return None
        steps, now_s = tuple(self._ring), self._clock()  # the question reaches every process at about the same time
        return await asyncio.to_thread(self._reply, steps, now_s, query.request_id)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _reply(self, steps: Steps, now_s: float, request_id: str) -> bytes:
        since_s = now_s - steps[0][0] if steps else 0.0
        reply = pb.EffectsReply(role=self._origin.role, name=self._origin.name, since_s=since_s)
        size = 0
        for at_s, event, effects in steps:
            caused = [effect for effect in effects if mentions(effect, request_id)]
            if not caused and not mentions(event, request_id):
                continue
            step = pb.RecordedStep(
                age_s=now_s - at_s,
                event_json=json.dumps(narrowed(plain(event), request_id)),
                effects_json=json.dumps([narrowed(plain(effect), request_id) for effect in caused]),
            )
            size += step.ByteSize()
            if size > MAX_REPLY_BYTES:
                reply.left_out += 1
            else:
                reply.steps.append(step)
        return reply.SerializeToString()

    def _write(self, line: str) -> None:
        assert self._file is not None
        self._room -= len(line)  # JSON's lines are ASCII
        if self._room < 0:
            self._stop("the file has reached the size HMAS_RECORD_MAX_BYTES")
            return
        try:
            self._file.write(line)
        except OSError as error:
            self._stop(str(error))

    def _stop(self, reason: str) -> None:
        log.warning("recording_ended", reason=reason)
        self.close()


def narrowed(data: Any, name: str) -> Any:
    """Returns a copy of plain `data` (dicts, lists, scalars) whose lists keep, of dicts and lists, only those that
    contain the value `name`."""
    if isinstance(data, dict):
        return {key: narrowed(value, name) for key, value in data.items()}
    if isinstance(data, list):
        return [narrowed(item, name) for item in data if not isinstance(item, dict | list) or _holds(item, name)]
    return data


def _holds(data: Any, name: str) -> bool:
    if isinstance(data, dict):
        return any(_holds(value, name) for value in data.values())
    return any(_holds(item, name) for item in data) if isinstance(data, list) else bool(data == name)


def _create(folder: Path, name: str) -> TextIO:
    """Creates a file that only its owner can read. It is written line by line, so that after a crash it holds the steps
    that led to it. Raises OSError if the file exists or cannot be created."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    return open(descriptor, "w", encoding="utf-8", buffering=1)
