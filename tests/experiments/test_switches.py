"""The cases of the live check of `hmas whatif`, and its count of right predictions."""

from experiments.live.switches import CASES, summary


def test_there_are_twenty_different_cases() -> None:
    assert len({case.name for case in CASES}) == 20
    assert all(case.before != case.after for case in CASES)


def test_right_predictions_are_counted_and_withheld_ones_apart() -> None:
    row = {"workload": "burst", "rate": 6.0, "before": "fcfs", "after": "edf", "observed_before": 0.5,
           "simulated_before": 0.5, "abstained": "", "predicted": 0.8, "came": 0.84}  # fmt: skip
    wrong, withheld = {**row, "came": 0.6}, {**row, "abstained": "it misses by 9 points"}
    still = {**row, "predicted": 0.5, "came": 0.5}
    told = summary([row, wrong, withheld, still]).splitlines()[-1]
    assert told.startswith("2 of 3 predictions within 5 points; 1 of 4 runs without one; 3 switches moved")
