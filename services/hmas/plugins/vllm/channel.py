"""The engine's end of the control block: reads the controls in force and writes the status."""

from pathlib import Path

from hmas.plugins.vllm.block import ControlBlock, StatusBlock
from hmas.plugins.vllm.block_file import BlockFile, status_path

REOPEN_S = 1.0  # interval at which a file that is missing or no longer changes is opened again
STATUS_S = 0.1


class ControlChannel:
    """Reads controls from the block at `path` and writes the status beside it; None: there are no controls.

    No method raises. `refused` counts unreadable blocks.
    """

    def __init__(self, path: Path | None) -> None:
        self._control = BlockFile(path, writable=False) if path else None
        self._status = BlockFile(status_path(path), writable=True) if path else None
        self._last = b""
        self._block: ControlBlock | None = None
        self._seen_s = self._looked_s = self._told_s = float("-inf")
        self.refused = 0

    def current(self, now_s: float) -> ControlBlock | None:
        """Returns the control block in force; None if there is none, or the worker did not renew it in time."""
        if self._control is None:
            return None
        data = self._read(now_s)
        if data and data != self._last:
            self._last = data
            self._take(now_s, ControlBlock.unpack(data))
        block = self._block
        return block if block is not None and now_s - self._seen_s <= block.valid_for_s else None

    def tell(self, now_s: float, status: StatusBlock) -> None:
        if self._status is None or now_s - self._told_s < STATUS_S:
            return
        self._told_s = now_s
        try:
            self._status.write(status.pack())
        except OSError:
            self._status.reopen()

    def _read(self, now_s: float) -> bytes:
        """Returns the bytes of the block; b"" if the file is missing or cannot be read."""
        assert self._control is not None
        silent = now_s - self._seen_s > REOPEN_S
        if silent and now_s - self._looked_s > REOPEN_S:
            self._looked_s = now_s
            self._control.reopen()
        elif silent and self._block is None and not self._last:
            return b""  # a missing file is not looked up at every step
        try:
            return self._control.read()
        except OSError:
            return b""

    def _take(self, now_s: float, block: ControlBlock | None) -> None:
        if block is None:
            self.refused += 1
        else:
            self._block = block
            self._seen_s = now_s
