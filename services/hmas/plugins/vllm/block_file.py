"""A block in a file that two processes share. Read and written by one system call each: no mapping that a truncated
file would turn into a fatal signal, nothing that blocks."""

import os
import stat
from pathlib import Path

from hmas.plugins.vllm.block import BLOCK_BYTES


class BlockFile:
    """One end of it. `read` and `write` raise OSError; a file that was replaced is found again by `reopen`."""

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._path = path
        self._flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        self._fd = -1

    def read(self) -> bytes:
        """The block's bytes, fewer if there are no more."""
        return os.pread(self._opened(), BLOCK_BYTES, 0)

    def write(self, data: bytes) -> None:
        os.pwrite(self._opened(), data, 0)

    def reopen(self) -> None:
        """Let the next access look the path up again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    close = reopen

    def _opened(self) -> int:
        if self._fd < 0:
            # Neither a pipe that would block nor a link to somewhere else.
            fd = os.open(self._path, self._flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(f"{self._path} is not a regular file")
            self._fd = fd
        return self._fd


def status_path(control_path: Path) -> Path:
    return control_path.with_name(control_path.name + ".status")
