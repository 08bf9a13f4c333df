"""What sets each baseline apart, and that none loses a request."""

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Slo
from hmas.engine.core import EngineCore
from hmas.engine.core.sequence import EngineRequest
from hmas.sim.baselines.fleet import EngineFleet
from hmas.sim.baselines.lightllm import LightLlmCore
from hmas.sim.baselines.sarathi import SarathiCore, remaining_prompt
from hmas.sim.baselines.sglang import INIT_RATIO, LpmQueue, SglangCore
from hmas.sim.baselines.systems import BASELINES, FleetSetting
from hmas.sim.workload import OfferedRequest, Workload
from tests.sim.sim_cases import SMALL, offered, random_workload


def run(name: str, requests: list[OfferedRequest], engines: int = 1) -> dict[str, float]:
    """First token of each request."""
    baseline = BASELINES[name]
    cores = [baseline.core(SMALL, FleetSetting(2048, 1)) for _ in range(engines)]
    result = EngineFleet(baseline, cores, Workload("w", tuple(requests), 10.0)).run()
    return {s.request_id: s.ttft_s or -1.0 for s in result.settlements}


@pytest.mark.parametrize("name", BASELINES)
def test_every_request_settles_once_with_its_own_length(name: str) -> None:
    baseline, workload = BASELINES[name], random_workload(7, 10.0, 20.0)
    cores = [baseline.core(SMALL, FleetSetting(2048, 1)) for _ in range(2)]
    result = EngineFleet(baseline, cores, workload).run()
    assert [s.request_id for s in result.settlements] == [r.id for r in workload.requests]
    assert all(s.outcome is Outcome.FINISHED for s in result.settlements)
    assert [s.output_tokens for s in result.settlements] == [r.output_tokens for r in workload.requests]
    assert all(core.kv.free == SMALL.limits.num_gpu_blocks for core in cores)


def crowd(count: int) -> list[OfferedRequest]:
    """More than the 16 sequences an engine takes, at once."""
    return [offered(i, 0.0, 200, 50) for i in range(count)]


def test_vllm_priority_lets_the_tightest_class_pass() -> None:
    urgent = offered(99, 0.01, 200, 50, Slo(0.5, 0.1))
    assert run("vllm", [*crowd(30), urgent])["r99"] > run("vllm-priority", [*crowd(30), urgent])["r99"]


def test_srpf_overtakes_a_half_computed_prompt() -> None:
    long, short = offered(0, 0.0, 2000, 5), offered(1, 0.03, 20, 5)
    fcfs, srpf = run("sarathi-fcfs", [long, short]), run("sarathi-srpf", [long, short])
    assert srpf["r1"] < fcfs["r1"]
    assert srpf["r0"] >= fcfs["r0"]


def test_edf_goes_by_the_first_token_deadline() -> None:
    late, soon = offered(0, 0.0, 2000, 5, Slo(9.0, 1.0)), offered(1, 0.03, 1500, 5, Slo(1.0, 1.0))
    edf = run("sarathi-edf", [late, soon])
    assert edf["r1"] < edf["r0"]


def test_srpf_key_is_what_is_left_of_the_prompt() -> None:
    core = SarathiCore(SMALL, remaining_prompt)
    core.add(EngineRequest("a", 600, 5, 600.0))
    core.step_begin()
    core.step_end()
    core.add(EngineRequest("b", 400, 5, 400.0))  # 344 of a are left, so a goes on
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == []


def test_sglang_prefills_apart_from_decoding() -> None:
    core = SglangCore(SMALL, 64)
    core.add(EngineRequest("a", 100, 20))
    core.step_begin()
    core.step_end()
    core.add(EngineRequest("b", 100, 20))
    plan = core.step_begin()
    assert plan is not None
    assert (plan.prefill_tokens, plan.decode_seqs) == (100, 0)
    assert core.step_end().tokens == ["b"]
    plan = core.step_begin()
    assert plan is not None
    assert (plan.prefill_tokens, plan.decode_seqs) == (0, 2)
    assert sorted(core.step_end().tokens) == ["a", "b"]


def test_sglang_holds_back_what_its_ratio_cannot_promise() -> None:
    capacity = SMALL.limits.num_gpu_blocks * SMALL.limits.block_size  # 8192
    core = SglangCore(SMALL, 4000)
    core.add(EngineRequest("a", 256, 500))
    core.step_begin()
    core.step_end()
    core.add(EngineRequest("b", 256, 500))
    core.step_begin()  # 256 + 4000 fit beside 256 held and 0.7 * 3999 promised
    core.step_end()
    core.add(EngineRequest("c", 256, 500))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == []
    assert capacity - 2 * 272 - 2 * 4000 * INIT_RATIO * 0.9 < 256 + 4000


def test_lightllm_avoids_the_preemptions_of_vllm() -> None:
    """Long outputs that all fit at first and do not later on."""
    past = [offered(i, 0.0, 20, 900) for i in range(25)]
    crowd = [offered(100 + i, 60.0 + i * 0.01, 100, 900) for i in range(16)]
    counts = {}
    for name, core in (("vllm", EngineCore(SMALL)), ("lightllm", LightLlmCore(SMALL, 1000, 1))):
        workload = Workload("w", tuple(past + crowd), 100.0)
        counts[name] = EngineFleet(BASELINES[name], [core], workload).run().run.preemptions
    assert counts["vllm"] > 0
    assert counts["lightllm"] < counts["vllm"]


def test_lpm_takes_the_longest_cached_prefix_first() -> None:
    queue = LpmQueue()
    core = SglangCore(SMALL, 64, waiting=queue)
    queue.cache = core.kv
    core.add(EngineRequest("warm", 160, 1, 0.0, tuple(range(10))))
    core.step_begin()
    core.step_end()
    for name, hashes in (("cold", ()), ("hit", tuple(range(10)))):
        core.add(EngineRequest(name, 250, 5, 0.0, hashes))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted[0] == "hit"


def test_least_outstanding_routing() -> None:
    heavy = [offered(0, 0.0, 2000, 400), offered(1, 0.1, 10, 1), offered(2, 2.0, 10, 1)]
    first = run("vllm", heavy, engines=2)
    assert first["r1"] < 0.1
    assert first["r2"] < 0.1
