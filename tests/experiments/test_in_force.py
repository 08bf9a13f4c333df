"""What was in force in the runs of a page, from what the runs recorded."""

from typing import Any

from experiments.report.in_force import in_force


def run(topologies: list[tuple[float, str]], layouts: list[tuple[float, str]], n_run: list[int]) -> dict[str, Any]:
    def spans(found: list[tuple[float, str]]) -> list[dict[str, Any]]:
        return [{"start_s": start_s, "topology": name} for start_s, name in found]

    recorded = {"topologies": spans(topologies), "layouts": spans(layouts), "regulated": [{"n_run": n} for n in n_run]}
    return {"cell": {"workload": {"duration_s": 100.0}}, "run": recorded}


class Results:
    def __init__(self, **rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def ours(self) -> dict[str, list[dict[str, Any]]]:
        return self.rows


def test_time_in_force_and_changes_are_told_of_each_system() -> None:
    turning = run(
        [(0.0, "edf"), (25.0, "max_on_time"), (25.0, "max_on_time"), (120.0, "fcfs")],
        [(20.0, "<= 100 ms: 1"), (60.0, "mixed"), (110.0, "<= 90 ms: 1")],
        [48, 64],
    )
    still = run([(0.0, "max_on_time")], [], [256])
    text = in_force(Results(hmas=[turning, still]))  # type: ignore[arg-type]
    row = next(line for line in text.splitlines() if line.startswith("| hmas"))
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "hmas", "2", "48, 123, 256", "max_on_time 87.5 %, edf 12.5 %", "0.5", "20.0 %", "0.5",
    ]  # fmt: skip


def test_without_workers_of_ours_there_is_no_section() -> None:
    assert in_force(Results()) == ""  # type: ignore[arg-type]
