"""What is told of a pool's engines to a rehearsal."""

from dataclasses import replace

from hmas.contracts.views import PaceView
from hmas.laws.rehearsal import pool_facts
from tests.meta.test_meta_agent import CALM
from tests.meta.test_rehearsals import BEAT

DOWN = replace(BEAT, engines=(*BEAT.engines, replace(BEAT.engines[0], engine="g", up=False)))


def pace(engine: str, base_s: float, observations: int = 9) -> PaceView:
    return PaceView(
        worker="w", engine=engine, base_s=base_s, sequence_s=1e-4, context_s=1e-7, prompt_s=1e-4,
        observations=observations,
    )  # fmt: skip


def test_paces_are_those_of_engines_that_are_up_in_the_order_of_classes() -> None:
    view = replace(CALM, paces=(pace("e", 0.01), pace("f", 0.02), pace("g", 0.03)))
    facts = pool_facts([DOWN], view, ("w/f", "w/e"))
    assert facts is not None
    assert [each.base_s for each in facts.paces] == [0.02, 0.01]
    unknown = pool_facts([BEAT], replace(view, paces=(pace("e", 0.01), pace("f", 0.02, 0))))
    assert unknown is not None
    assert [each.engine for each in unknown.paces] == ["e"]
    assert unknown.pace is None


def test_a_pool_without_engines_has_no_facts() -> None:
    assert pool_facts([replace(BEAT, draining=True)], None) is None
