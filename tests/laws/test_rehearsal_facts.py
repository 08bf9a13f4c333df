"""What is told of a pool's engines to a rehearsal."""

from dataclasses import replace

from hmas.contracts.control import Hints, Split, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.rehearsal import InstanceCount, Policy, PoolEngine, PoolFacts, SloChange
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.views import PaceView
from hmas.laws.rehearsal import described, pool_facts, typed
from tests.meta.test_meta_agent import CALM
from tests.meta.test_rehearsals import BEAT

DOWN = replace(BEAT, engines=(*BEAT.engines, replace(BEAT.engines[0], engine="g", up=False)))


def pace(engine: str, base_s: float, observations: int = 9) -> PaceView:
    return PaceView(
        worker="w", engine=engine, base_s=base_s, sequence_s=1e-4, context_s=1e-7, prompt_s=1e-4,
        observations=observations,
    )  # fmt: skip


def paces(facts: PoolFacts) -> list[float | None]:
    return [None if each.pace is None else each.pace.base_s for each in facts.engines]


def test_paces_are_those_of_engines_that_are_up_in_the_order_of_classes() -> None:
    view = replace(CALM, paces=(pace("e", 0.01), pace("f", 0.02), pace("g", 0.03)))
    facts = pool_facts([DOWN], view, ("w/f", "w/e"))
    assert facts is not None
    assert paces(facts) == [0.02, 0.01]
    unknown = pool_facts([DOWN], replace(view, paces=(pace("e", 0.01), pace("f", 0.02, 0), pace("g", 0.03))))
    assert unknown is not None
    assert paces(unknown) == [0.01, 0.01], "f has the pace of its kind"
    assert unknown.pace is None


def test_without_a_layout_engines_stand_in_the_order_of_their_steps() -> None:
    quick = replace(BEAT.engines[1], hardware="B200")
    beat = replace(BEAT, engines=(BEAT.engines[0], quick, replace(quick, engine="d")))
    view = replace(CALM, paces=(pace("e", 0.03), pace("f", 0.01), pace("d", 0.01, 0)))
    facts = pool_facts([beat], view)
    assert facts is not None
    assert paces(facts) == [0.01, 0.01, 0.03]
    assert [each.kind.hardware for each in facts.engines] == ["B200", "B200", "H100"]


def test_a_pool_without_engines_has_no_facts() -> None:
    assert pool_facts([replace(BEAT, draining=True)], None) is None


def test_facts_are_of_what_is_up_with_the_limits_of_each_engine() -> None:
    weak = replace(
        BEAT.engines[0], engine="f", max_num_seqs=8, max_model_len=2048, kv_capacity_tokens=4096, block_size=32,
        model="n", hardware="L4",
    )  # fmt: skip
    worse = replace(weak, engine="h", up=False, max_num_seqs=1, max_model_len=1, kv_capacity_tokens=1)
    strong = replace(BEAT.engines[0], model="m")
    beats = [
        replace(BEAT, engines=(strong, worse)),
        replace(BEAT, worker="x", engines=(weak,)),
        replace(BEAT, worker="y", engines=(worse,)),
        replace(BEAT, worker="z", draining=True, engines=(worse,)),
    ]
    facts = pool_facts(beats, None)
    assert facts is not None
    assert (facts.workers, facts.pace) == (2, None)
    assert facts.engines == (
        PoolEngine(
            max_num_seqs=strong.max_num_seqs, max_model_len=strong.max_model_len,
            kv_capacity_tokens=strong.kv_capacity_tokens, block_size=16, kind=EngineKind("m", "H100"),
        ),
        PoolEngine(
            max_num_seqs=8, max_model_len=2048, kv_capacity_tokens=4096, block_size=32, kind=EngineKind("n", "L4")
        ),
    )  # fmt: skip
    assert pool_facts(beats[2:], None) is None


def test_the_mean_pace_is_known_where_each_engine_has_the_least_observations() -> None:
    view = replace(CALM, paces=(pace("e", 0.01, 3), pace("f", 0.03, 1)))
    one = pool_facts([BEAT], view)
    assert one is not None
    assert one.pace is not None
    assert one.pace.base_s == (0.01 * 3 + 0.03) / 4
    two = pool_facts([BEAT], view, least=2)
    assert two is not None
    assert two.pace is None
    assert paces(two) == [0.01, 0.03]


def test_engines_that_no_class_was_given_stand_last_by_name() -> None:
    view = replace(CALM, paces=(pace("e", 0.01), pace("f", 0.02)))
    beat = replace(BEAT, engines=(BEAT.engines[1], BEAT.engines[0]))
    for order, expected in (((), ["e", "f"]), (("w/f",), ["f", "e"]), (("w/e", "w/f"), ["e", "f"])):
        facts = pool_facts([beat], view, order)
        assert facts is not None
        assert [each.pace.engine for each in facts.engines if each.pace] == expected


def test_policies_in_words() -> None:
    plain = Policy(topology=TopologyName.EDF)
    assert described(plain) == "edf"
    full = replace(
        plain, hints=Hints(by_tokens=True), split=Split((0.07,), (1, 2)), engines=2,
        slos=(SloChange(name="a", ttft_s=1.5), SloChange(name="b", ttft_s=2.0, tpot_s=0.05)),
    )  # fmt: skip
    assert (
        described(full)
        == "edf, for tokens, <= 70 ms: 1, > 70 ms: 2, 2 engines, a TTFT 1500 ms, b TTFT 2000 ms TPOT 50 ms"
    )
    assert described(replace(plain, engines=1)) == "edf, 1 engine"


def test_kinds_are_told_of_each_engine_in_the_order_of_classes() -> None:
    cards = {"e": "A100", "f": "H100"}
    beat = replace(BEAT, engines=tuple(replace(each, hardware=cards[each.engine]) for each in BEAT.engines))
    view = replace(CALM, paces=(pace("f", 0.02),))  # nothing was measured of e, nor of another of its kind
    for order, kinds in ((("w/f", "w/e"), ["H100", "A100"]), (("w/e", "w/f"), ["A100", "H100"])):
        facts = pool_facts([beat], view, order)
        assert facts is not None
        assert [each.kind.hardware for each in facts.engines] == kinds
        assert [each.pace is not None for each in facts.engines] == [kind == "H100" for kind in kinds]


def typed_as(hardware: str, kv_tokens: int, *types: InstanceType) -> str | None:
    engine = PoolEngine(
        max_num_seqs=8, max_model_len=4096, kv_capacity_tokens=kv_tokens, block_size=16, kind=EngineKind("", hardware)
    )  # fmt: skip
    (found,) = typed(PoolFacts(engines=(engine,), workers=1), types).engines
    return None if found.instance_type is None else found.instance_type.name


def test_an_engine_is_of_the_type_with_its_cards_and_the_nearest_memory() -> None:
    step = StepCostModel(0.01, 1e-5, 1e-5, 1e-8)
    one = InstanceType(name="one", model="m", hardware="h100", gpus=1, step=step, kv_tokens=10_000)
    two = replace(one, name="two", gpus=2, kv_tokens=30_000)
    other = replace(one, name="other", hardware="a100", kv_tokens=12_000)
    types = one, two, other
    assert [typed_as("H100", kv, *types) for kv in (10_000, 12_400, 8_100, 30_000)] == ["one", "one", "one", "two"]
    assert [typed_as("H100", kv, *types) for kv in (7_900, 12_600, 20_000)] == [None, None, None]
    assert [typed_as("", kv, *types) for kv in (10_900, 11_900)] == ["one", "other"]
    assert [typed_as("unknown", 11_900, *types), typed_as("A100", 11_000, *types)] == ["other", "other"]
    assert [typed_as("H100x2", kv, *types) for kv in (29_000, 10_000, 0)] == ["two", None, "two"]
    assert [typed_as("H100", 0, *types), typed_as("", 0, *types), typed_as("B200", 10_000, *types)] == [None] * 3


def test_a_plan_in_words() -> None:
    step = StepCostModel(0.01, 1e-5, 1e-5, 1e-8)
    kind = InstanceType(name="m-tp2", model="m", hardware="h100", gpus=2, step=step, kv_tokens=10_000)
    plan = InstanceCount(kind, 3), InstanceCount(replace(kind, name="m-tp4"), 1)
    assert described(Policy(topology=TopologyName.EDF, engines=plan)) == "edf, 3 x m-tp2, 1 x m-tp4"
