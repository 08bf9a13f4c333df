"""What sets each baseline apart, and that none loses a request."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hmas.contracts.outcome import Outcome
from hmas.contracts.request import Cost, Slo
from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.engine.core.sequence import EngineRequest
from hmas.prediction.agent.backend import CostQuery
from hmas.sim.estimators import linear_costs
from hmas.sim.processes.fleet import EngineFleet, EngineLoad, FleetSetting
from hmas.sim.workload import OfferedRequest, Workload
from hmas_lab.sim.baselines.lightllm import LightLlmCore
from hmas_lab.sim.baselines.router import DynamoRouter, LlmdRouter
from hmas_lab.sim.baselines.sarathi import SarathiCore, remaining_prompt
from hmas_lab.sim.baselines.sglang import INIT_RATIO, LpmQueue, SglangCore
from hmas_lab.sim.baselines.systems import BASELINES, loosest
from tests.sim.sglang_burst import Prefill, Retraction, simulated_events
from tests.sim.sim_cases import SMALL, offered, random_workload


def run(name: str, requests: list[OfferedRequest], engines: int = 1) -> dict[str, float]:
    """First token of each request."""
    baseline = BASELINES[name]
    cores = [baseline.core(SMALL, FleetSetting(1)) for _ in range(engines)]
    result = EngineFleet(baseline, cores, Workload("w", tuple(requests), 10.0), costs=linear_costs()).run()
    return {s.request_id: s.ttft_s or -1.0 for s in result.settlements}


@pytest.mark.parametrize("name", BASELINES)
def test_every_request_settles_once_with_its_own_length(name: str) -> None:
    baseline, workload = BASELINES[name], random_workload(7, 10.0, 20.0)
    cores = [baseline.core(SMALL, FleetSetting(1)) for _ in range(2)]
    result = EngineFleet(baseline, cores, workload, costs=linear_costs()).run()
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
    core = SglangCore(SMALL)
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
    core = SglangCore(SMALL)
    core.add(EngineRequest("a", 256, 500, max_tokens=4000))
    core.step_begin()
    core.step_end()
    core.add(EngineRequest("b", 256, 500, max_tokens=4000))
    core.step_begin()  # 256 + 4000 fit beside 256 held and 0.7 * 3999 promised
    core.step_end()
    core.add(EngineRequest("c", 256, 500, max_tokens=4000))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == []
    assert capacity - 2 * 272 - 2 * 4000 * INIT_RATIO * 0.9 < 256 + 4000


@pytest.mark.parametrize(("cached", "admitted"), [(0, []), (15, ["b"])])
def test_sglang_needs_no_room_for_what_its_neighbour_holds_of_a_prompt(cached: int, admitted: list[str]) -> None:
    prefix = tuple(range(cached))
    core = SglangCore(SMALL.with_limits(num_gpu_blocks=300))
    core.add(EngineRequest("a", 256, 4000, 0.0, prefix, max_tokens=4000))
    for _ in range(1200):
        core.step_begin()
        core.step_end()
    room = core.kv.free * core.kv.block_size - (4000 - core.generated("a")) * core.new_token_ratio
    core.add(EngineRequest("b", 256, 9, 0.0, prefix, max_tokens=int(room) - 100))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == admitted


def test_sglang_takes_and_retracts_a_burst_as_the_real_one_did() -> None:
    """What SGLang 0.5.23 logged on a CPU; `tests/engines` asks the real one again. Once it was full it took nobody
    until somebody left, the last of those with the least output was retracted, and came again behind all others."""
    retracted = [
        (1155, 0.5539), (1171, 0.5859), (1189, 0.6219), (1208, 0.6599), (1230, 0.7039), (1254, 0.7519), (1280, 0.8039),
        (1311, 0.8659), (1345, 0.9339), (1384, 1.0),
    ]  # fmt: skip
    assert list(simulated_events(900)) == [
        Prefill(0, 1, 100),
        Prefill(899, 13, 1300),
        Prefill(899, 10, 1000),
        *(Retraction(after, 1, ratio) for after, ratio in retracted),
        Prefill(1398, 9, 3514),
        Prefill(1398, 2, 1133),
    ]


def test_lightllm_avoids_the_preemptions_of_vllm() -> None:
    """Long outputs that all fit at first and do not later on."""
    past = [offered(i, 0.0, 20, 900) for i in range(25)]
    crowd = [offered(100 + i, 60.0 + i * 0.01, 100, 900) for i in range(16)]
    counts = {}
    for name, core in (("vllm", EngineCore(SMALL)), ("lightllm", LightLlmCore(SMALL, 1))):
        workload = Workload("w", tuple(past + crowd), 100.0)
        counts[name] = EngineFleet(BASELINES[name], [core], workload).run().run.preemptions
    assert counts["vllm"] > 0
    assert counts["lightllm"] < counts["vllm"]


def test_lpm_takes_the_longest_cached_prefix_first() -> None:
    queue = LpmQueue()
    core = SglangCore(SMALL, waiting=queue)
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


def card(card_gb: float, hardware: str = "h100") -> EngineProfile:
    limits = EngineLimits(max_num_batched_tokens=8192, num_gpu_blocks=20_000, max_model_len=32_768)
    return replace(SMALL, limits=limits, card_gb=card_gb, hardware=hardware)


@pytest.mark.parametrize(
    ("card_gb", "chunk"), [(16, 2048), (24, 2048), (40, 4096), (80, 8192), (141, 8192), (192, 16384)]
)
def test_sglang_chooses_its_chunk_by_the_card(card_gb: float, chunk: int) -> None:
    limits = BASELINES["sglang"].core(card(card_gb), FleetSetting(1)).profile.limits
    assert limits.max_num_batched_tokens == chunk
    assert limits.max_num_seqs == min(chunk, max(2048, min(int(320_000 / 32_768 * 512), 4096)))


@pytest.mark.parametrize(("card_gb", "hardware", "seqs"), [(80, "h100", 1024), (80, "A100-80GB", 256), (24, "l4", 256)])
def test_vllm_chooses_its_sequences_by_the_card(card_gb: float, hardware: str, seqs: int) -> None:
    assert BASELINES["vllm"].core(card(card_gb, hardware), FleetSetting(1)).profile.limits.max_num_seqs == seqs


def test_the_bound_allows_what_any_system_is_given() -> None:
    for profile in (card(80), card(24), SMALL):
        most = loosest(profile).limits
        for baseline in BASELINES.values():
            limits = baseline.core(profile, FleetSetting(1)).profile.limits
            assert limits.max_num_seqs <= most.max_num_seqs
            assert limits.max_num_batched_tokens <= most.max_num_batched_tokens


@pytest.mark.parametrize(("asked", "admitted"), [(64, ["c"]), (4000, []), (None, [])])
def test_sglang_reserves_what_each_request_asks_for(asked: int | None, admitted: list[str]) -> None:
    """Two that may be long leave room for one that asks for little; without a bound it could fill the context."""
    core = SglangCore(SMALL)
    for name in ("a", "b"):
        core.add(EngineRequest(name, 256, 500, max_tokens=4000))
        core.step_begin()
        core.step_end()
    core.add(EngineRequest("c", 256, 50, max_tokens=asked))
    plan = core.step_begin()
    assert plan is not None
    assert plan.admitted == admitted


def test_lightllm_gives_no_request_more_than_it_asks_for() -> None:
    core = LightLlmCore(SMALL, 1)
    for name in ("a", "b"):
        core.add(EngineRequest(name, 100, 50, max_tokens=3900))
        core.step_begin()
        core.step_end()
    for name, asked in (("short", 60), ("long", 4000)):
        core.add(EngineRequest(name, 100, 50, max_tokens=asked))
    assert [name for name in ("short", "long") if core._peak_fits(core._sequences[name])] == ["short"]


def test_dynamo_goes_by_class_and_then_by_prompt() -> None:
    """Enough prompts to hold the rest back; of those, the tight class goes first, and in it the short prompt."""
    ahead = [offered(i, 0.0, 400, 5) for i in range(4)]
    held = [
        offered(10, 0.001, 300, 5, Slo(9.0, 1.0)),
        offered(11, 0.001, 500, 5, Slo(1.0, 1.0)),
        offered(12, 0.001, 100, 5, Slo(1.0, 1.0)),
    ]
    first = run("dynamo", [*ahead, *held])
    assert first["r12"] < first["r11"] < first["r10"]


def test_llmd_goes_by_the_first_token_deadline() -> None:
    ahead = [offered(i, 0.0, 400, 5) for i in range(8)]
    late, soon = offered(10, 0.001, 400, 5, Slo(9.0, 1.0)), offered(11, 0.002, 400, 5, Slo(1.0, 1.0))
    first = run("llm-d", [*ahead, late, soon])
    assert first["r11"] < first["r10"]


def test_dynamo_takes_the_engine_with_the_fewest_blocks_to_compute_and_to_hold() -> None:
    router, request = DynamoRouter(), offered(0, 0.0, 200, 5)
    prompts = EngineLoad(SMALL, 1, {"a": 300})  # counts twice: to compute, and to hold
    contexts = EngineLoad(SMALL, 3, context_tokens=500)
    assert router.choose(request, (prompts, contexts)) is contexts


class SaidCosts:
    """A cost model whose TPOT is what waits in the engine, in tenths of a second, and whose TTFT never misses."""

    version = "said"

    def predict(self, queries: Sequence[CostQuery]) -> list[Cost]:
        return [Cost(0.1, 0.1 * (1 + q.waiting)) for q in queries]


def engine_loads(*queued: int) -> tuple[EngineLoad, ...]:
    return tuple(EngineLoad(SMALL, outstanding=n, queued=n) for n in queued)


@pytest.mark.parametrize(
    ("slo_tpot_s", "queued", "chosen"),
    [
        (0.5, (0, 3, 2), 1),  # all keep it: the one that is just fast enough
        (0.35, (0, 3, 2), 2),  # the second misses it
        (0.05, (4, 1, 2), 1),  # all miss it: the least deficit
        (0.05, (4, 0, 2), 1),  # or an idle one
    ],
)
def test_llmd_takes_the_engine_with_the_least_headroom(slo_tpot_s: float, queued: tuple[int, ...], chosen: int) -> None:
    loads = engine_loads(*queued)
    found = LlmdRouter(SaidCosts()).choose(offered(0, 0.0, 200, 5, Slo(9.0, slo_tpot_s)), loads)
    assert loads.index(found) == chosen


def test_llmd_holds_requests_back_while_its_engines_queue_is_full_in_the_mean() -> None:
    router = LlmdRouter(SaidCosts())
    assert router.ready(engine_loads(5, 5)) == ()
    assert router.ready(loads := engine_loads(6, 3)) == [loads[1]]


def test_llmd_learns_what_its_predictions_miss() -> None:
    """Told a tenth of the real prefill times, it learns that no engine keeps the TTFT, and takes an idle one."""
    router, loads = LlmdRouter(SaidCosts()), engine_loads(0, 3)
    request = offered(0, 0.0, 200, 5, Slo(0.5, 0.5))
    assert router.choose(request, loads) is loads[1]
    for i in range(1, 200):
        router.choose(done := offered(i, 0.0, 200, 5, Slo(0.5, 0.5)), loads)
        router.started(done, 1.0)
    assert router.choose(request, loads) is loads[0]


def test_a_baseline_that_predicts_needs_a_cost_model() -> None:
    with pytest.raises(ValueError, match="needs a cost model"):
        EngineFleet(BASELINES["llm-d"], [EngineCore(SMALL)], Workload("w", (), 1.0))
