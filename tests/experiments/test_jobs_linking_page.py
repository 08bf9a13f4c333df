"""The goals of the page about linking."""

from experiments.jobs_linking import GATEWAYS, NAMED, LinkRow, goals
from hmas_loadgen.workflows.recorded import BFCL, TAU_BENCH, WHO_AND_WHEN

TIMED, TOLD = "jobs start once a second", f"with repeats, {GATEWAYS} gateways, which tell one another once a second"


def row(case: str, corpus: str, right: int) -> LinkRow:
    return LinkRow(case=case, corpus=corpus, requests=1100, links=1000, found=1000, right=right, equal_right=1000)


def test_each_goal_is_judged_by_what_was_linked_right() -> None:
    found = [
        row(TIMED, TAU_BENCH, 990), row(TIMED, BFCL, 989), row(TIMED, WHO_AND_WHEN, 900), row(TOLD, WHO_AND_WHEN, 899),
        row(NAMED, BFCL, 1000), row(NAMED, TAU_BENCH, 999), row("all at once, in any order", BFCL, 0),
    ]  # fmt: skip
    assert [goal.met for goal in goals(found)] == [True, False, True, False, True, False]
