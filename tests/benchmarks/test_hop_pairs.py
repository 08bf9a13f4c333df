"""What perception and the following of prompts cost the hop is told pair by pair, with what can be told at all."""

import pytest

from benchmarks.hop.page import BLIND, MESH, UNREAD, perception_page, prompts_page


def runs(name: str, *us: float) -> list[dict[str, object]]:
    counts = {"read": 90.0, "left": 10.0} if name == MESH else {"read": 0.0, "left": 100.0}
    return [{"name": name, "us_per_stream": x, "us_per_plain_request": x / 10, "errors": 0, **counts} for x in us]


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((101.0, 99.0, 100.5), "within noise"), ((110.0, 111.0, 110.5), "**more**"), ((90.0, 91.0, 90.5), "less")],
)
def test_a_difference_is_noise_or_more_or_less(ours: tuple[float, ...], verdict: str) -> None:
    page = perception_page([*runs(MESH, *ours), *runs(UNREAD, 100.0, 100.0, 100.0)], 8.0, 512)
    (line,) = (line for line in page.splitlines() if line.startswith("| streamed request |"))
    assert line.endswith(f"| {verdict} |")
    assert "the prior answered 10.0 % for want of time" in page
    assert "3 pairs of runs" in page


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ((101.0, 102.0, 101.5), "met"), ((110.0, 111.0, 110.5), "**missed**"),
        ((90.0, 110.0, 103.0), "**cannot be told**"),
    ],
)  # fmt: skip
def test_a_goal_within_the_interval_is_neither_met_nor_missed(ours: tuple[float, ...], verdict: str) -> None:
    page = prompts_page([*runs(MESH, *ours), *runs(BLIND, 100.0, 100.0, 100.0)], 8.0, 512)
    (line,) = (line for line in page.splitlines() if line.startswith("| plain request |"))
    assert line.endswith(f"| {verdict} |")
