"""What a pool may run on so many cards, and what the pace law keeps of it."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.pool_plan import Budget, Catalogue
from hmas.laws.pace import PaceConfig, best_split, expected
from hmas.laws.placement.candidates import KeepConfig, PaceTable, kept, multisets, types_of
from hmas.laws.placement.demand import PoolDemand, SampledRequest, in_order, moments_of, pace_of
from tests.builders.placement import CATALOGUE, demand, kind

KINDS = in_order(CATALOGUE.types)
EIGHT = (Budget("h100", 8),)


def test_multisets_are_all_that_fit_and_none_is_empty() -> None:
    two = (*KINDS, kind(2, hardware="a100"))
    budgets = (Budget("h100", 5), Budget("a100", 3))
    by_hand = {
        counts
        for counts in product(range(6), repeat=4)
        if any(counts)
        and sum(n * k.gpus for n, k in zip(counts, two, strict=True) if k.hardware == "h100") <= 5
        and sum(n * k.gpus for n, k in zip(counts, two, strict=True) if k.hardware == "a100") <= 3
    }
    found = list(multisets(two, budgets))
    assert len(found) == len(set(found))
    assert set(found) == by_hand


def test_types_are_those_of_the_model_that_fit_the_fastest_first() -> None:
    catalogue = Catalogue((*CATALOGUE.types, kind(1, model="other"), kind(1, hardware="a100")))
    fit = types_of(demand(1.0), catalogue, (Budget("h100", 3),))
    assert [each.name for each in fit] == ["m-h100x2", "m-h100x1"]
    with pytest.raises(ValueError, match="no type of m"):
        types_of(demand(1.0), catalogue, (Budget("b200", 8),))


@pytest.mark.parametrize("counts", [(1, 0, 0), (0, 2, 1), (1, 2, 3), (0, 0, 11), (2, 3, 6)])
@pytest.mark.parametrize("rate_rps", [5.0, 40.0])
def test_the_table_finds_what_the_pace_law_calls_the_best_split(counts: tuple[int, ...], rate_rps: float) -> None:
    config, asked = PaceConfig(), demand(rate_rps)
    paces = [pace_of(each) for each, count in zip(KINDS, counts, strict=True) for _ in range(count)]
    split, rps = best_split(moments_of(asked), paces, config)
    ranked = PaceTable(asked, KINDS, config).ranked(counts, 3)
    assert ranked[0][1] * asked.rate_rps == pytest.approx(rps)
    for found, share in ranked:
        assert share * asked.rate_rps == pytest.approx(expected(moments_of(asked), paces, found, config))
    assert len({found.engines for found, _ in ranked}) == len(ranked)
    assert [share for _, share in ranked] == sorted((share for _, share in ranked), reverse=True)
    assert ranked[0][0] == split or ranked[0][1] == pytest.approx(ranked[1][1])


def test_few_are_kept_of_each_number_of_cards_and_one_type_alone_always() -> None:
    config = KeepConfig(most=2, within=0.02)
    found = kept(demand(40.0), KINDS, EIGHT, config)
    assert set(found) == {(n,) for n in range(1, 9)}
    everything = kept(demand(40.0), KINDS, EIGHT, KeepConfig(most=99, within=1.0))
    assert len(everything[8,]) == 9  # of 1, 2 and 4 cards: so many partitions of 8
    for cards, few in found.items():
        best = max(each.law for each in everything[cards])
        assert few[0].law == best
        close = [each for each in few if each.law >= best - config.within]
        assert 1 <= len(close) <= 3
        assert len(few) - len(close) <= 1
        single = max(each.law for each in everything[cards] if each.of_one_type)
        assert max(each.law for each in few if each.of_one_type) == single
        for each in few:
            assert sum(one.gpus for one in each.instances) == cards[0]
            assert list(each.instances) == list(in_order(each.instances))


def test_too_many_multisets_of_two_kinds_of_cards_are_combined_from_what_is_best_of_each() -> None:
    two = in_order((*CATALOGUE.types, *(kind(gpus, hardware="a100") for gpus in (1, 2))))
    budgets = (Budget("h100", 4), Budget("a100", 2))
    full = kept(demand(20.0), two, budgets, KeepConfig())
    pruned = kept(demand(20.0), two, budgets, KeepConfig(in_full=5))
    assert set(full) == set(pruned) == {(a, b) for a in range(5) for b in range(3) if a or b}
    for cards, few in pruned.items():
        assert few[0].law >= full[cards][0].law - 0.05


@given(st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900), st.floats(0.01, 0.2)), min_size=1, max_size=30))
def test_the_moments_of_a_demand_are_those_of_its_requests(rows: list[tuple[int, int, float]]) -> None:
    asked = PoolDemand(
        pool="p", model="m", seconds=10.0,
        requests=tuple(SampledRequest(0.1 * i, p, o, 2.0, slo_s) for i, (p, o, slo_s) in enumerate(rows)),
    )  # fmt: skip
    views = [view for view, _ in moments_of(asked)]
    assert sum(view.requests for view in views) == len(rows)
    assert sum(view.prompt_tokens for view in views) == sum(p for p, _, _ in rows)
    assert sum(view.output_tokens for view in views) == sum(o for _, o, _ in rows)
    assert sum(view.context_tokens for view in views) == pytest.approx(sum(p * o + o * o / 2 for p, o, _ in rows))
    assert sum(rps for _, rps in moments_of(asked)) == pytest.approx(asked.rate_rps)
    slos_s = [view.tpot_slo_s for view in views]
    assert slos_s == sorted(slos_s)
    assert slos_s[-1] == max(slo_s for _, _, slo_s in rows)
    for low_s, high_s in zip([0.0, *slos_s], slos_s, strict=False):
        within = [slo_s for _, _, slo_s in rows if low_s < slo_s <= high_s]
        assert max(within) == high_s
        assert high_s <= 1.0501 * min(within)
