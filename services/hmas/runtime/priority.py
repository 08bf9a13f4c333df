"""A process's place among the others of its machine: what serves goes first where they share a core."""

import os
from contextlib import suppress
from pathlib import Path

LOW = 5  # a third of the share of a process that has the usual priority
LOWEST = 19


def give_way(niceness: int = LOW) -> None:
    """Lowers the priority of this process, unless it is as low already."""
    weigh_session(os.getpid(), os.nice(max(0, niceness - os.nice(0))))


def weigh_session(pid: int, niceness: int) -> None:
    """Sets the niceness of the session that a process leads, if it leads one.

    Linux shares a core among sessions first (autogroups, sched(7)) and heeds the niceness of processes only within
    one. The supervisor starts each service in a session of its own, where `nice` alone changes nothing.
    """
    with suppress(OSError):  # there are no autogroups in this kernel, or the process has ended
        if os.getsid(pid) == pid:
            Path(f"/proc/{pid}/autogroup").write_text(str(niceness))
