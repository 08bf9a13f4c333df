"""The lines that a long command shows, written by a thread of their own.

A terminal may stop taking output (Ctrl-S, or a pager that was scrolled up). A process that writes to it then stands
still, and that must not be the thread that supervises processes.
"""

import os
import threading
from queue import Full, Queue

MAX_LINES = 1000
LAST_WORDS_S = 0.5


class Screen:
    """Writes texts to the file descriptor `fd`, in order; it drops and counts what comes while `MAX_LINES` wait."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: Queue[str] = Queue(MAX_LINES)
        self._left_out = 0
        self._gone = False
        threading.Thread(target=self._write_all, name="screen", daemon=True).start()

    def say(self, text: str) -> None:
        """Shows a text that ends with a line end. Never blocks."""
        if self._gone:
            return
        try:
            self._waiting.put_nowait(text)
        except Full:
            self._left_out += 1

    def close(self) -> None:
        """Waits a moment for what was said last, unless the terminal takes nothing."""
        with self._waiting.all_tasks_done:
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, LAST_WORDS_S)

    def _write_all(self) -> None:
        while True:
            text = self._waiting.get()
            left_out, self._left_out = self._left_out, 0
            data = (f"... {left_out} lines left out ...\n" if left_out else "").encode() + text.encode()
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:  # the terminal, or the reader of the pipe, is gone
                self._gone = True
            self._waiting.task_done()
