"""Which goals a setting misses: what is late where everybody must wait, and what is slow where nobody need."""

import pytest

from experiments.fast import BEFORE, DIRECT, FastRow, FastSetting
from experiments.study import Figures
from hmas_lab.sim.systems import HMAS


def row(setting: FastSetting, **medians_s: float) -> FastRow:
    names = {"now": HMAS, "before": BEFORE, "direct": DIRECT}
    scores = {"goodput_rate": 0.9, "esg_rate": 100.0, "ttft_p95_s": 1.0}
    runs: dict[str, tuple[Figures, ...]] = {
        names[name]: ({"score": {**scores, "ttft_p50_s": median_s}},) for name, median_s in medians_s.items()
    }
    return FastRow(setting=setting, seeds=(1,), runs=runs)


@pytest.mark.parametrize(
    ("light", "now", "before", "direct", "missed"),
    [
        (True, 0.11, 0.3, 0.1, []),
        (True, 0.12, 0.3, 0.1, ["median TTFT 1.20 × plain FCFS's, goal 1.1 ×"]),
        (False, 0.5, 1.0, 0.1, []),
        (False, 0.7, 1.0, 0.1, ["median TTFT 0.70 ×, goal 0.6 ×"]),
        (False, 0.19, 0.19, 0.1, []),  # too short to be felt
    ],
)
def test_the_median_is_held_against_what_matters_at_its_load(
    light: bool, now: float, before: float, direct: float, missed: list[str]
) -> None:
    found = row(FastSetting("mix", 1.0, light=light), now=now, before=before, direct=direct)
    assert found.missed() == missed


def test_a_burst_has_a_goal_of_its_own() -> None:
    assert row(FastSetting("burst", 1.0), now=0.3, before=1.0, direct=0.1).missed() == [
        "median TTFT 0.30 ×, goal 0.2 ×"
    ]
