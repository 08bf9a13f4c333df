"""The page about agents' loops on real engines."""

from benchmarks.jobs_on_vllm import FIGURES, page

GOOD = {
    "kept": 0.96, "kept_by_events": 1.0, "stale_s": 0.0, "excess": -0.01, "excess_pressed": 0.02, "job_time": 0.7,
    "computed": 0.5,
}  # fmt: skip
BAD = {
    "kept": 0.94, "kept_by_events": 0.98, "stale_s": 2.5, "excess": -0.03, "excess_pressed": 0.03, "job_time": 0.71,
    "computed": 0.9,
}  # fmt: skip


def test_the_page_judges_each_figure_by_its_worst_round() -> None:
    assert GOOD.keys() == BAD.keys() == FIGURES.keys()
    assert "missed" not in page([GOOD, GOOD])
    lines = page([GOOD, BAD]).splitlines()
    for name, figure in FIGURES.items():
        (line,) = (line for line in lines if line.startswith(f"| {figure.words} |"))
        assert line.endswith("| no goal |" if name == "computed" else "| **missed** in 1 of 2 |")
