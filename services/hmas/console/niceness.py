"""The console's place among the processes of its machine: what serves goes first where they share a core."""

import os

NICENESS = 10


def give_way() -> None:
    """Lowers the priority of this process, unless it is as low already."""
    os.nice(max(0, NICENESS - os.nice(0)))
