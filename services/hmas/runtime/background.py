"""A low-priority thread for models, which keep a core busy."""

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

USUAL = 5  # gives a thread a third of the CPU share of the event loops, which relay tokens, on a shared core


def background_thread(name: str, niceness: int = USUAL) -> ThreadPoolExecutor:
    """Returns an executor with one thread of low priority. A model that answers late has a fallback, but a token that
    is relayed late has none."""
    return ThreadPoolExecutor(1, thread_name_prefix=name, initializer=_give_way, initargs=(niceness,))


def _give_way(niceness: int) -> None:
    if sys.platform == "linux":  # only Linux has a niceness for each thread
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
