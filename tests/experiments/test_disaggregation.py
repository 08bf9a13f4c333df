"""The study of two engines for one request: what its systems are, and what its goals say."""

from dataclasses import replace

import pytest

from experiments.disaggregation import (
    AUTO,
    FIRST_SEED,
    ROLES,
    SYSTEMS,
    TRAFFIC,
    WHOLE,
    SplitCell,
    SplitRow,
    goals_of,
    offered_to,
    page_of,
    rows_of,
    setup_of,
)
from experiments.study import Figures, Options
from hmas.engine.named import named_profile

MIX = TRAFFIC[0]


def cell(system: str, seed: int = FIRST_SEED) -> SplitCell:
    return SplitCell(traffic=MIX, rate_rps=MIX.rates[0], system=system, seed=seed)


def rows(auto: float, whole: float = 0.7, best: float = 0.8, rates: int = 3) -> list[SplitRow]:
    shares = dict.fromkeys(SYSTEMS, 0.5) | {WHOLE: whole, "2P2D": best, AUTO: auto}
    return [
        SplitRow("mix", "p", float(rate), system, (share,)) for rate in range(rates) for system, share in shares.items()
    ]


@pytest.mark.parametrize(
    ("auto", "rates", "met"),
    [(0.86, 3, [True, True]), (0.86, 2, [True, False]), (0.79, 3, [True, False]), (0.77, 3, [False, False])],
)
def test_the_goals_are_judged_by_the_best_that_nobody_knows_before(auto: float, rates: int, met: list[bool]) -> None:
    assert [goal.met for goal in goals_of(rows(auto, rates=rates))] == met


def test_without_a_run_nothing_is_judged() -> None:
    assert [goal.met for goal in goals_of([])] == [None, None]


def test_a_load_has_rows_once_all_systems_have_a_seed() -> None:
    found: dict[SplitCell, Figures] = {cell(system): {"share": 0.5, "cached": 0.1} for system in SYSTEMS}

    class Found:
        def get(self, wanted: SplitCell) -> Figures | None:
            return found.get(wanted)

    assert [row.system for row in rows_of(Options(seeds=2), Found())] == list(SYSTEMS)
    del found[cell(AUTO)]
    assert rows_of(Options(seeds=2), Found()) == []


def test_the_systems_are_set_as_they_are_called() -> None:
    profile = named_profile(MIX.profile)
    told = {}
    for system in SYSTEMS:
        setup = setup_of(cell(system), profile)
        split = setup.worker_config.split
        told[system] = split.rule, split.beyond_tokens, setup.pools[0].roles
    assert told[WHOLE] == ("never", 0, ())
    assert told[AUTO] == ("auto", 0, ())
    assert told["3P1D"] == ("always", 0, ROLES["3P1D"])
    assert told["beyond 256"] == ("beyond", 256, ROLES["2P2D"])


def test_the_page_says_how_far_decided_is_ahead() -> None:
    page = page_of(rows(0.86), Options(seeds=1), None)  # type: ignore[arg-type]
    assert page["first"][0][3:] == ("0.700", "0.800 (2P2D)", "0.500", "0.860", "+16.0", "+6.0")
    assert page["over_split"] == pytest.approx([6.0] * 3)


def test_sizes_are_those_of_the_traffic_and_prompts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.disaggregation.perceived", lambda workload, folder: workload)
    code = next(each for each in TRAFFIC if each.name == "code")
    plain = offered_to(cell(WHOLE))
    long = offered_to(SplitCell(traffic=code, rate_rps=MIX.rates[0], system=WHOLE, seed=FIRST_SEED))
    sizes = {each.id: each for each in plain.requests}
    assert all(each.prompt for each in long.requests)
    common = [each for each in long.requests if each.id in sizes]  # what fits the context of both
    assert len(common) > 300
    for each in common:
        assert each.request.prompt_tokens == max(1, round(2.0 * sizes[each.id].request.prompt_tokens))
        assert each.output_tokens == max(1, round(0.22 * sizes[each.id].output_tokens))


def test_a_recorded_trace_needs_its_folder_and_is_told_apart() -> None:
    recorded = next(each for each in TRAFFIC if each.is_recorded)
    wanted = SplitCell(traffic=recorded, rate_rps=4.0, system=AUTO, seed=FIRST_SEED)
    with pytest.raises(ValueError, match="give --data FOLDER"):
        offered_to(wanted)
    setup = setup_of(wanted, named_profile(recorded.profile))
    assert (setup.estimator, setup.worker_config.split.rule) == ("prior", "auto")
    assert setup_of(cell(AUTO), named_profile(MIX.profile)).estimator == "shipped"


def test_shares_of_cached_tokens_are_told_where_there_are_any() -> None:
    told = [replace(row, cached=0.25 if row.workload == "mix" and row.rate_rps else 0.0) for row in rows(0.8, rates=2)]
    page = page_of(told, Options(seeds=1), None)  # type: ignore[arg-type]
    assert page["cached"] == [("mix", "1", *(["0.250"] * len(SYSTEMS)))]
