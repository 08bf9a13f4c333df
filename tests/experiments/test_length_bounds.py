"""What pages tell of length bounds."""

from dataclasses import asdict, replace

from experiments.length_bounds import bounds_of, of_cell, told
from hmas.sim.coverage import BoundTally, Coverage
from hmas.sim.result import SystemRun


def test_the_sentence_counts_what_outgrew_over_all_runs_and_the_worst_of_them() -> None:
    runs = [{"admitted": 300, "outgrown": 30}, {"admitted": 100, "outgrown": 18}, {}, None, {"hit": 0.5}]
    assert told(runs).startswith(
        "Length bounds: 12.0% of 400 requests that our workers admitted outgrew theirs, at most 18.0% in one run"
    )
    assert told([{}, None]) == "Length bounds: not measured."


def test_a_system_without_workers_of_ours_has_no_bounds() -> None:
    tally = BoundTally(admitted=7, outgrown=2)
    coverage = Coverage(total=tally, buckets=(), fifths=(), at_grant=tally, reserved_blocks=0, unused_blocks=0)
    assert bounds_of(SystemRun()) == {}
    measured = replace(SystemRun(), coverage=coverage)
    assert bounds_of(measured) == of_cell({"run": asdict(measured)}) == {"admitted": 7, "outgrown": 2}
    assert of_cell({"run": asdict(SystemRun())}) == of_cell({"goodput_rate": 0.9}) == of_cell(None) == {}
