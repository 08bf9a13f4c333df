"""The count of outgrown length bounds, which does not pass through the agents."""

from hmas.contracts.outcome import Outcome
from hmas.sim.coverage import coverage
from hmas.sim.workload import Journey
from tests.sim.sim_cases import offered


def journey(
    number: int,
    arrival_s: float,
    prompt: int,
    output: int,
    bound: float | None,
    outcome: Outcome | None = Outcome.FINISHED,
) -> Journey:
    there = offered(number, arrival_s, prompt, output)
    return Journey(offered=there, granted_tokens=bound, bound_tokens=bound, outcome=outcome)


def test_every_admitted_request_counts_by_its_true_length() -> None:
    journeys = [
        journey(0, 1.0, 100, 50, 50.0),  # as long as its bound
        journey(1, 30.0, 100, 51, 50.0),
        journey(2, 99.0, 600, 900, 40.0, outcome=None),  # still runs when the simulation is cut off
        journey(3, 99.0, 600, 900, None, outcome=Outcome.SLO_UNREACHABLE),  # never admitted
    ]
    found = coverage(journeys, (128, 512), 100.0, 16, 4096)
    assert (found.total.admitted, found.total.outgrown) == (3, 2)
    assert [(t.admitted, t.outgrown) for t in found.buckets] == [(2, 1), (0, 0), (1, 1)]
    assert [(t.admitted, t.outgrown) for t in found.fifths] == [(1, 0), (1, 1), (0, 0), (0, 0), (1, 1)]


def test_unused_blocks_are_reserved_and_never_filled() -> None:
    journeys = [journey(0, 0.0, 100, 20, 220.0), journey(1, 0.0, 100, 500, 60.0)]
    found = coverage(journeys, (128,), 10.0, 16, 4096)
    assert found.reserved_blocks == 20 + 10
    assert found.unused_blocks == 20 - 8  # an outgrown bound leaves nothing unused
    short = coverage(journeys[:1], (128,), 10.0, 16, 256)
    assert short.reserved_blocks == 16  # nothing is reserved beyond the engine's context
