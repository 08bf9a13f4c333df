"""The order in which classes get the engines of a mixed pool: by the steps of their kinds, and in natural order."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hmas.contracts.control import Split
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.views import PaceView
from hmas.laws.layout import assigned, in_class_order, natural
from hmas.laws.pace import PaceConfig, are_ranked, of_kinds, ranked

CONFIG = PaceConfig()
STEPS_S = (0.01, 0.016, 0.03, 0.05)  # of kinds, farther apart than what counts as alike


def law(base_s: float, observations: int = 1) -> PaceView:
    return PaceView(
        worker="", engine="", base_s=base_s, sequence_s=0.0, context_s=0.0, prompt_s=0.0, observations=observations
    )  # fmt: skip


def kind(number: int) -> EngineKind:
    return EngineKind("m", f"card {number}")


def numbered(name: str) -> tuple[int, int]:
    worker, engine = name.split("/")
    return int(worker[1:]), int(engine[1:])


@st.composite
def pools(draw: st.DrawFn) -> dict[str, int]:
    """The kind of each engine of a pool, by its place, in any order."""
    places = draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 120)), min_size=2, max_size=14, unique=True))
    kinds = draw(st.lists(st.integers(0, 3), min_size=len(places), max_size=len(places)))
    return {f"w{worker}/e{engine}": each for (worker, engine), each in zip(places, kinds, strict=True)}


def in_order(pool: dict[str, int], places: list[str], measured: set[str]) -> list[str]:
    own = {each: law(STEPS_S[pool[each]]) for each in measured}
    paces = of_kinds(own, {each: kind(k) for each, k in pool.items()}) | own
    return [each for each, _ in ranked(paces, places, CONFIG)]


@given(pool=pools(), cut=st.integers(1, 13), data=st.data())
def test_the_strictest_class_has_the_quickest_engines_whatever_their_numbers(
    pool: dict[str, int], cut: int, data: st.DataObject
) -> None:
    one_of_each = {next(p for p, k in pool.items() if k == each) for each in set(pool.values())}
    measured = one_of_each | data.draw(st.sets(st.sampled_from(sorted(pool))))
    order = in_order(pool, data.draw(st.permutations(sorted(pool))), measured)
    assert order == sorted(pool, key=lambda place: (pool[place], numbered(place)))
    classes = assigned(Split((0.1,), (min(cut, len(pool) - 1), 1)), order).engines
    strict = [pool[each.place] for each in classes if each.pace_class == 0]
    assert max(strict) <= min(pool[each.place] for each in classes if each.pace_class == 1)


@given(pool=pools(), data=st.data())
def test_other_names_in_the_same_order_change_nothing_else(pool: dict[str, int], data: st.DataObject) -> None:
    """Workers and engines get other numbers, of more or fewer digits, that stand in the same order."""
    other = {}
    for part in (0, 1):
        old = sorted({numbered(place)[part] for place in pool})
        steps = data.draw(st.lists(st.integers(1, 60), min_size=len(old), max_size=len(old)))
        other[part] = {number: sum(steps[: i + 1]) for i, number in enumerate(old)}
    new = {p: f"w{other[0][numbered(p)[0]]}/e{other[1][numbered(p)[1]]}" for p in pool}
    order = in_order(pool, list(pool), set(pool))
    assert in_order({new[p]: k for p, k in pool.items()}, list(new.values()), set(new.values())) == [
        new[place] for place in order
    ]


@given(pool=pools(), data=st.data())
def test_an_engine_that_comes_later_joins_its_kind(pool: dict[str, int], data: st.DataObject) -> None:
    kinds = {each: kind(number) for each, number in pool.items()}
    order = in_order(pool, list(pool), set(pool))
    known = data.draw(st.sets(st.sampled_from(order)))
    before = [place for place in order if place in known]
    places = in_class_order(data.draw(st.permutations(order)), before, kinds)
    assert [place for place in places if place in known] == before
    strangers = {pool[place] for place in order} - {pool[place] for place in known}
    mine = [place for place in places if pool[place] not in strangers]
    assert [pool[place] for place in mine] == sorted(pool[place] for place in mine)
    assert places[len(mine) :] == sorted(set(places) - set(mine), key=numbered)
    for first, second in pairwise(places):
        if not {first, second} & known and pool[first] == pool[second]:
            assert numbered(first) < numbered(second)


@given(steps_s=st.lists(st.sampled_from([0.01, 0.012, 0.0125, 0.0126, 0.015, 0.02]), min_size=1, max_size=8))
def test_what_is_ranked_is_known_to_be_and_what_is_not_has_a_slower_engine_before_a_quicker(
    steps_s: list[float],
) -> None:
    paces = {f"e{i}": law(step_s) for i, step_s in enumerate(steps_s)}
    assert are_ranked(paces, [each for each, _ in ranked(paces, list(paces), CONFIG)], CONFIG)
    wrong = any(a > 1.25 * b for i, a in enumerate(steps_s) for b in steps_s[i:])
    assert are_ranked(paces, list(paces), CONFIG) is not wrong


def test_numbers_in_names_count_by_their_value() -> None:
    names = ["e", "e02", "e2", "e10", "e10a1", "e10a11", "f1", "gpu-2/e9", "gpu-10/e1", f"z{'9' * 5000}"]
    assert sorted(set(names), key=natural) == names
    assert natural("e2") != natural("e02")


def test_of_an_unknown_kind_nothing_is_taken_from_others() -> None:
    paces = of_kinds({"a": law(1.0, 1), "b": law(3.0, 3)}, {"a": kind(0), "b": kind(0), "c": kind(0), "d": kind(1)})
    assert {each: pace.base_s for each, pace in paces.items()} == dict.fromkeys("abc", 2.5)
    assert in_class_order(["x10", "x9", "c", "a"], ["c", "b"], {"c": kind(0), "a": kind(0)}) == ["c", "a", "x9", "x10"]
    assert of_kinds({"gone": law(1.0)}, {"a": kind(0)}) == {}


def test_an_engine_joins_the_last_of_its_kind() -> None:
    kinds = dict.fromkeys("abcx", kind(0)) | {"c": kind(1)}
    assert in_class_order(["c", "b", "x", "a"], ["a", "b", "c"], kinds) == ["a", "b", "x", "c"]
