"""`hmas report`: what was told minute by minute, by hour and by tenant, and as one page."""

from dataclasses import replace

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.rehearsal import PastFigures, Policy, Rehearsal, Rehearsed
from hmas.contracts.scheduling_gain import SchedulingGain, TenantScheduled
from hmas.mesh.engines_needed import EnginesNeeded, engines_needed
from hmas.mesh.gain_records import RecordedGain, gain_table
from hmas.mesh.gain_report import ReportFacts, render_gains

GAIN = SchedulingGain(
    pool="m", window_s=300.0, requests=400, was=0.6, played=0.6, scheduled=0.9, low=0.85, high=0.95, engines=2,
    topology="max_on_time",
    tenants=(
        TenantScheduled(tenant="<b>acme</b>", requests=300, was=0.5, scheduled=0.9),
        TenantScheduled(tenant="zeta", requests=100, was=0.9, scheduled=0.9),
    ),
)  # fmt: skip
LESS = replace(GAIN, requests=100, was=1.0, scheduled=1.0, low=1.0, high=1.0, tenants=GAIN.tenants[1:])
SILENT = replace(GAIN, abstains="the simulation of what is in force has 50.0% on time: it misses by 9.0 points")
RECORDS = [RecordedGain(at_s, gain) for at_s, gain in ((3600.0, GAIN), (7199.0, LESS), (7200.0, SILENT))]
FACTS = ReportFacts(pool="m", span="the last 24h", made_s=7300.0, unsized="it was left out")
OBSERVING = Policy(topology=TopologyName.MAX_ON_TIME, observes=True)
SCHEDULED = replace(OBSERVING, observes=False)


def test_records_are_summed_by_hour_and_by_tenant() -> None:
    table = gain_table(reversed(RECORDS))
    assert list(table.hours) == [3600.0, 7200.0]
    assert table.hours[3600.0].was == pytest.approx(0.68)
    assert (table.hours[7200.0].was, table.hours[7200.0].abstained) == (None, 1)
    assert [(each.tenant, each.requests) for each in table.tenants] == [("<b>acme</b>", 300), ("zeta", 200)]
    assert table.tenants[0].scheduled == pytest.approx(0.9)
    assert (table.total.told, table.total.abstained) == (2, 1)


def test_the_page_has_all_and_needs_nothing_else() -> None:
    sizes = (EnginesNeeded(None, 4), EnginesNeeded(2, 4))
    page = render_gains(gain_table(RECORDS), replace(FACTS, engines=2, sizes=sizes, sized_s=600.0, unsized=""))
    for words in ("68% as it was, 92% as scheduled", "1970-01-01 02:00 UTC", "cannot be said", "more than 4",
                  "last 10 minutes", "1 of 3 windows", "missed what was observed by more than 5 points"):  # fmt: skip
        assert words in page, words
    assert "<svg" in page
    assert "&lt;b&gt;acme" in page
    assert "<b>acme" not in page
    assert not [words for words in ("src=", 'href="http', "<script", "@import") if words in page]
    assert page == render_gains(gain_table(RECORDS), replace(FACTS, engines=2, sizes=sizes, sized_s=600.0, unsized=""))


def test_a_page_of_nothing_says_so() -> None:
    page = render_gains(gain_table([]), FACTS)
    assert "What scheduling would have brought cannot be said." in page
    assert "That cannot be said: it was left out." in page


def played(needs: dict[bool, int], abstains: str = "") -> tuple[list[list[int]], object]:
    """A rehearsal under which all is on time from so many engines on, by whether it observes; and what it was asked."""
    asked: list[list[int]] = []
    was = PastFigures(requests=500, on_time=0.5, ttft_p50_s=1.0, ttft_p95_s=2.0, tenants=())

    async def ask(policies: list[Policy]) -> Rehearsal:
        asked.append([each.engines for each in policies if isinstance(each.engines, int)])
        counts = [(each.engines if isinstance(each.engines, int) else 0, needs[each.observes]) for each in policies]
        gains = [0.5 if count >= needed else 0.4 for count, needed in counts]
        found = tuple(
            Rehearsed(policy=each, figures=was, gain=gain, low=gain, high=gain)
            for each, gain in zip(policies, gains, strict=True)
        )
        return Rehearsal(window_s=300.0, observed=was, in_force=was, candidates=found, abstains=abstains)

    return asked, ask


@pytest.mark.parametrize(("observing", "scheduled"), [(1, 1), (5, 3), (8, 8), (9, 4), (99, 99)])
async def test_engines_are_found_by_bisection(observing: int, scheduled: int) -> None:
    asked, ask = played({True: observing, False: scheduled})
    found, why = await engines_needed((OBSERVING, SCHEDULED), 4, 0.95, ask)  # type: ignore[arg-type]
    assert [each.engines for each in found] == [n if n <= 8 else None for n in (observing, scheduled)]
    assert why == ""
    assert len(asked) <= 4
    assert all(1 <= n <= 8 for each in asked for n in each)


async def test_engines_are_not_told_where_the_simulation_is_not_to_be_believed() -> None:
    _, ask = played({True: 1, False: 1}, "it misses by 9 points")
    found = await engines_needed((OBSERVING, SCHEDULED), 4, 0.95, ask)  # type: ignore[arg-type]
    assert found == ([], "it misses by 9 points")
