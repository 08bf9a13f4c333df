"""Which priority a process has after it has given way."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hmas.runtime.priority import LOW, LOWEST

pytestmark = pytest.mark.skipif(os.nice(0) > 0, reason="whoever runs this has given way already, as with `nice`")
AUTOGROUP = Path("/proc/self/autogroup")
SOURCE = """
import os, sys
from hmas.runtime.priority import give_way
give_way(int(sys.argv[1]))
give_way()
print(os.nice(0))
if os.path.exists(sys.argv[2]): print(open(sys.argv[2]).read())
"""


def after_giving_way(niceness: int, *, leads: bool) -> tuple[int, str]:
    """Returns the niceness of a process that has given way, and that of its session; "" if it has none, as at boot."""
    ran = subprocess.run(
        [sys.executable, "-c", SOURCE, str(niceness), AUTOGROUP],
        capture_output=True,
        check=True,
        start_new_session=leads,
    )
    nice, *session = ran.stdout.decode().split()
    return int(nice), session[-1] if session else ""


def test_giving_way_twice_lowers_no_further() -> None:
    assert after_giving_way(LOWEST, leads=False)[0] == LOWEST
    assert after_giving_way(LOW, leads=False)[0] == LOW


@pytest.mark.skipif(not AUTOGROUP.exists(), reason="this kernel shares its cores without regard to sessions")
def test_a_session_gives_way_with_its_leader_alone() -> None:
    """Among sessions Linux does not heed the niceness of their processes."""
    *_, before = ["", *AUTOGROUP.read_text().split()]
    assert after_giving_way(LOW, leads=True) == (LOW, str(LOW))
    assert after_giving_way(LOW, leads=False) == (LOW, before)
    assert after_giving_way(LOWEST, leads=True) == (LOWEST, str(LOWEST))
