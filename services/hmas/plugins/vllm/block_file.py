"""A block in a file that two processes share.

It is read and written by one system call each, which does not block. It is not memory-mapped, because access to a
mapping of a truncated file is a fatal signal.
"""

import os
import stat
from pathlib import Path

from hmas.plugins.vllm.block import BLOCK_BYTES


class BlockFile:
    """One process's handle of a block's file, opened on first use. `read` and `write` raise OSError.

    After the file was replaced, `reopen` makes the next access use the new one.
    """

    def __init__(self, path: Path, *, writable: bool) -> None:
        self._path = path
        self._flags = os.O_RDWR | os.O_CREAT if writable else os.O_RDONLY
        self._fd = -1

    def read(self) -> bytes:
        """Returns the block's bytes; fewer than `BLOCK_BYTES` if the file is shorter."""
        return os.pread(self._opened(), BLOCK_BYTES, 0)

    def write(self, data: bytes) -> None:
        os.pwrite(self._opened(), data, 0)

    def reopen(self) -> None:
        """Closes the file; the next access opens its path again."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    close = reopen

    def _opened(self) -> int:
        if self._fd < 0:
            # The flags prevent blocking on a pipe and following a symbolic link.
            fd = os.open(self._path, self._flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                os.close(fd)
                raise OSError(f"the control block {self._path} is not a regular file: delete it or name another")
            self._fd = fd
        return self._fd


def status_path(control_path: Path) -> Path:
    return control_path.with_name(control_path.name + ".status")
