"""A thread for work that keeps a core busy: models."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

NICENESS = 5  # a third of the weight of the event loops, which relay tokens, where they share a core


def background_thread(name: str) -> ThreadPoolExecutor:
    """One thread that gives way to every other on the machine: an answer that is late has a fallback, a token has
    none."""
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_give_way)


def _give_way() -> None:
    if sys.platform == "linux":  # where niceness is a thread's own
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
