"""What is told of a pool's engines to a rehearsal."""

from dataclasses import replace

from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.contracts.views import PaceView
from hmas.laws.rehearsal import pool_facts
from tests.meta.test_meta_agent import CALM

ENGINE = EngineInfo(
    engine="e", up=True, kind="vllm", hardware="H100", max_model_len=4096, kv_capacity_tokens=8192, block_size=16,
    max_num_seqs=16,
)  # fmt: skip
BEAT = WorkerHeartbeat(
    worker="w", incarnation="1", address="", wire_version=2, pool="m", aliases=(),
    engines=(ENGINE, replace(ENGINE, engine="f"), replace(ENGINE, engine="g", up=False)),
    queued=0, queued_tokens=0, running=0, max_queued=9, max_queued_tokens=9, backlog_s=0.0, draining=False,
)  # fmt: skip


def pace(engine: str, base_s: float, observations: int = 9) -> PaceView:
    return PaceView(
        worker="w", engine=engine, base_s=base_s, sequence_s=1e-4, context_s=1e-7, prompt_s=1e-4,
        observations=observations,
    )  # fmt: skip


def test_paces_are_those_of_engines_that_are_up_in_the_order_of_classes() -> None:
    view = replace(CALM, paces=(pace("e", 0.01), pace("f", 0.02), pace("g", 0.03)))
    facts = pool_facts([BEAT], view, ("w/f", "w/e"))
    assert facts is not None
    assert [each.base_s for each in facts.paces] == [0.02, 0.01]
    unknown = pool_facts([BEAT], replace(view, paces=(pace("e", 0.01), pace("f", 0.02, 0))))
    assert unknown is not None
    assert [each.engine for each in unknown.paces] == ["e"]
    assert unknown.pace is None


def test_a_pool_without_engines_has_no_facts() -> None:
    assert pool_facts([replace(BEAT, draining=True)], None) is None
