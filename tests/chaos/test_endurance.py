"""The short form of the soak: a minute with a kill every ten seconds."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.endurance import Endurance, Row, endure

pytestmark = pytest.mark.chaos


@pytest.mark.long
async def test_every_request_has_an_end_whatever_is_killed(mesh: Any) -> None:
    done = await endure(mesh, minutes=1.0, kill_every_s=10.0, seed=1)
    print(done.page())
    assert done.kills >= 3
    assert done.ends["finished"] > 0.5 * sum(done.ends.values())
    assert not done.ends.get("lost"), done.ends


def test_growth_is_found() -> None:
    flat = Row("worker-1", 0, (100.0, 110.0), (40.0, 85.0), (20.0, 42.0), (30.0, 33.0), (18.0, 18.0))
    assert not flat.grown()
    for grown in (
        replace(flat, rss_mb=(100.0, 140.0)),
        replace(flat, descriptors_at_rest=(30.0, 36.0)),
        replace(flat, tasks_at_rest=(18.0, 24.0)),
    ):
        assert len(grown.grown()) == 1
        assert Endurance(60, 8, 1, 60, {"finished": 9}, (4, 9), [flat, grown]).faults() == grown.grown()
    assert Endurance(60, 8, 1, 60, {"finished": 9, "lost": 1}, (4, 4), [flat]).faults() == ["1 requests without an end"]
