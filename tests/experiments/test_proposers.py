"""What bad proposers cost: what they say, and how it is judged."""

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.proposers import (
    LATE,
    NEVER,
    NONSENSE,
    SEARCH_SEED,
    UNREHEARSED,
    WORST,
    ProposerCell,
    cells_of,
    compute,
    search_cells,
    worst_of,
)
from experiments.report.proposers import costs, goals, write_page
from hmas.sim import scripted_llm
from hmas.sim.systems import HMAS

SHORT = ProposerCell(system=HMAS, seed=1, proposed="fcfs", rate_rps=6.0, seconds=40.0)


@pytest.mark.parametrize("system", [UNREHEARSED, WORST, NONSENSE, LATE, NEVER])
def test_only_what_is_not_rehearsed_is_done_as_it_was_said(system: str) -> None:
    before = scripted_llm.answer, scripted_llm.ANSWER_S
    found = compute(replace(SHORT, system=system))
    assert ("fcfs" in found["topologies"]) == (system == UNREHEARSED)
    assert (scripted_llm.answer, scripted_llm.ANSWER_S) == before


def test_the_worst_topology_is_searched_with_a_seed_of_its_own() -> None:
    found = {cell: {"goodput_rate": 0.2 if cell.system == "sjf" else 0.5} for cell in search_cells()}
    assert {cell.seed for cell in found} == {SEARCH_SEED}
    assert worst_of(found) == "sjf"


def test_a_proposer_that_costs_more_is_told_and_so_is_a_control_that_does_not_lose(tmp_path: Path) -> None:
    rate = {HMAS: 0.9, UNREHEARSED: 0.7, WORST: 0.896, NONSENSE: 0.894, LATE: 0.9, NEVER: 0.91}

    def found(rates: dict[str, float]) -> dict[ProposerCell, dict[str, object]]:
        return {
            cell: {"goodput_rate": rates[cell.system] + 0.001 * cell.seed, "topologies": ["fcfs"]}
            for cell in cells_of("fcfs", (1, 2, 3))
        }

    assert [goal.met for goal in goals(costs(found(rate), "fcfs", (1, 2, 3)))] == [True, True, False, True, True]
    weak = goals(costs(found(rate | {UNREHEARSED: 0.9}), "fcfs", (1, 2, 3)))
    assert weak[0].met is False
    page, _ = write_page(found(rate), "fcfs", (1, 2, 3), tmp_path)
    assert f"{NONSENSE}: costs at most 0.5 points: +0.6 ± 0.0 points: **missed**" in page.read_text()
