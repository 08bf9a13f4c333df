"""Sets an engine's limits while it runs: through vLLM's control block, or SGLang's internal state."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import orjson
import structlog

from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import BlockFile, status_path
from hmas.worker.adapters.monitor import SglangFacts, Unreachable

log = structlog.get_logger()

Post = Callable[[str, bytes], Awaitable[tuple[int, bytes]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SteeringConfig:
    """When limits are sent: `renew_s` and `valid_for_s` are for vLLM's control block, the others for SGLang."""

    renew_s: float = 1.0  # time between two writes of the control block
    valid_for_s: float = 5.0  # an engine whose worker is gone returns to its own limits after this
    settle_s: float = 0.25  # limits that change within this time are sent once
    retry_s: float = 1.0  # time until an engine that did not answer is asked again


class ControlBlockBridge:
    """Writes limits into the control block of a vLLM engine that has H-MAS's scheduler plug-in, and renews them before
    they expire."""

    def __init__(self, engine: str, path: Path, config: SteeringConfig) -> None:
        self._engine = engine
        self._config = config
        self._control = BlockFile(path, writable=True)
        self._status = BlockFile(status_path(path), writable=False)
        self._caps: tuple[int, int] | None = None
        self._seq = 0
        self._written = True  # the last write went well
        self._faults = 0

    def steer(self, n_run: int, b_token: int) -> None:
        self._caps = (n_run, b_token)
        self._write()

    def status(self) -> StatusBlock | None:
        """Returns the plug-in's last status; None if it has written none yet."""
        try:
            self._status.reopen()
            return StatusBlock.unpack(self._status.read())
        except OSError:
            return None

    async def run(self) -> None:
        """Renews the limits and watches the plug-in's status until cancelled, then closes the files."""
        try:
            while True:
                self._write()
                self._watch()
                await asyncio.sleep(self._config.renew_s)
        finally:
            self._control.close()
            self._status.close()

    def _write(self) -> None:
        if self._caps is None:
            return
        self._seq += 1
        try:
            self._control.write(ControlBlock(self._seq, *self._caps, self._config.valid_for_s).pack())
            self._written = True
        except OSError as error:
            self._control.reopen()
            if self._written:
                log.warning("control_block_not_written", engine=self._engine, reason=str(error))
            self._written = False

    def _watch(self) -> None:
        status = self.status()
        if status is not None and status.faults > self._faults:
            log.warning("scheduler_plugin_faults", engine=self._engine, faults=status.faults, refused=status.refused)
        self._faults = status.faults if status is not None else 0


class SglangCap:
    """Sets the limit on running requests of an SGLang engine while it runs.

    `post(path, body)` returns the status and body of an answer, or raises Unreachable.
    """

    PATH = "/set_internal_state"

    def __init__(self, engine: str, post: Post, config: SteeringConfig) -> None:
        self._engine = engine
        self._config = config
        self._post = post
        self._own = 0
        self._pipeline = 1
        self._wanted = self._acknowledged = 0  # limits on running requests, wanted and answered; 0: none yet
        self._lowered = False  # it may run with another limit than its own
        self._changed = asyncio.Event()

    def discovered(self, facts: SglangFacts) -> None:
        """Takes the facts of an engine that is there, or there again. One that restarted runs with its own limit; one
        that was only out of reach may have another."""
        self._own, self._pipeline, self._acknowledged = facts.max_running, facts.pipeline_stages, 0
        self._changed.set()

    def steer(self, n_run: int) -> None:
        self._wanted = max(1, min(n_run, self._own or n_run))
        self._changed.set()

    async def run(self) -> None:
        """Sends the wanted limit to the engine whenever it has changed, until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            known = self._acknowledged or (0 if self._lowered else self._own)
            if self._wanted and self._wanted != known and not await self._tell(self._wanted):
                self._changed.set()
                await asyncio.sleep(self._config.retry_s)
            await asyncio.sleep(self._config.settle_s)

    async def restore(self) -> None:
        """Gives the engine its own limit back, if another one was sent: also one that it has not answered yet. It is
        asked once more if it does not answer."""
        if self._lowered and not await self._tell(self._own):
            await self._tell(self._own)

    async def _tell(self, running: int) -> bool:
        """Sends a limit to the engine and returns whether it answered; a limit that it refused is not sent again."""
        cap = max(1, running // self._pipeline)
        body = orjson.dumps({"server_args": {"pp_max_micro_batch_size": cap}})
        self._lowered |= running != self._own
        try:
            status, answer = await self._post(self.PATH, body)
        except Unreachable as error:
            log.warning("engine_cap_not_told", engine=self._engine, reason=str(error))
            return False
        self._acknowledged, self._lowered = running, running != self._own
        if status != 200 or b"false" in answer:
            log.warning("engine_cap_refused", engine=self._engine, status=status, answer=answer[:200].decode("latin-1"))
        return True
