"""The table of baselines, by the name under which `hmas sim` and experiment files know them."""

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.prediction.agent.backend import CostModel
from hmas.sim.processes.fleet import Baseline, FleetSetting, HoldingRouter
from hmas.sim.vllm import VLLM, vllm_defaults
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.baselines import lightllm, sglang
from hmas_lab.sim.baselines.lightllm import LightLlmCore
from hmas_lab.sim.baselines.niyama import MAX_CHUNK_TOKENS, NiyamaConfig, NiyamaCore
from hmas_lab.sim.baselines.niyama_client import paced
from hmas_lab.sim.baselines.router import DynamoRouter, LlmdRouter
from hmas_lab.sim.baselines.sarathi import SarathiCore, remaining_prompt, request_priority
from hmas_lab.sim.baselines.sglang import LpmQueue, SglangCore

SARATHI_CHUNK, SARATHI_SEQS = 512, 128


def _class_priority(offered: OfferedRequest) -> float:
    return offered.slo.ttft_s


def _first_token_deadline(offered: OfferedRequest) -> float:
    return offered.request.arrival_s + offered.slo.ttft_s


def _prompt(offered: OfferedRequest) -> float:
    return float(offered.request.prompt_tokens)


def loosest(profile: EngineProfile) -> EngineProfile:
    """Returns the profile with the most sequences and tokens per step that any system of ours or any baseline is given
    on it, so that a bound with these limits holds for all of them."""
    made = [profile, vllm_defaults(profile)]
    if profile.card_gb is not None:
        made += [sglang.with_defaults(profile), lightllm.with_defaults(profile)]
    tokens = max(MAX_CHUNK_TOKENS, *(each.limits.max_num_batched_tokens for each in made))
    return profile.with_limits(
        max_num_batched_tokens=tokens, max_num_seqs=max(each.limits.max_num_seqs for each in made)
    )


def _vllm_priority(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(vllm_defaults(profile).with_limits(scheduling_policy="priority"))


def _sglang(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return SglangCore(sglang.with_defaults(profile))


def _sglang_lpm(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    queue = LpmQueue()
    core = SglangCore(sglang.with_defaults(profile), waiting=queue)
    queue.cache = core.kv
    return core


def _lightllm(profile: EngineProfile, setting: FleetSetting) -> EngineCore:
    return LightLlmCore(lightllm.with_defaults(profile), setting.seed)


def _chunked(profile: EngineProfile) -> EngineProfile:
    seqs = min(SARATHI_SEQS, profile.limits.max_num_seqs)
    return profile.with_limits(max_num_batched_tokens=SARATHI_CHUNK, max_num_seqs=seqs)


def _sarathi(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(_chunked(profile))


def _sarathi_edf(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return SarathiCore(_chunked(profile), request_priority)


def _sarathi_srpf(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return SarathiCore(_chunked(profile), remaining_prompt)


def _dynamo(_: CostModel | None) -> HoldingRouter:
    return DynamoRouter()


def _llmd(costs: CostModel | None) -> HoldingRouter:
    if costs is None:
        raise ValueError("llm-d's router needs a cost model: give EngineFleet `costs`")
    return LlmdRouter(costs)


def _niyama(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return NiyamaCore(profile, NiyamaConfig())


SGLANG_CHECKED = (
    "sgl-project/sglang: `server_args.py` (chunk by memory), `_resolve_max_num_reqs` (running requests), "
    "`managers/schedule_policy.py` and `managers/schedule_batch.py` (admission, retraction)"
)
SGLANG_COMPARED = (
    "a real SGLang 0.5.23 on the CPU: in a burst of unlike prompts that overfills memory the same prefill batches, "
    "retractions and ratios, step by step"
)
SARATHI_CHECKED = "microsoft/sarathi-serve, `sarathi/config/config.py` at 13f16cf (chunk 512, 128 sequences)"

BASELINES: dict[str, Baseline] = {
    b.name: b
    for b in (
        VLLM,
        Baseline(
            name="vllm-priority",
            source="vLLM --scheduling-policy priority; clients state their TTFT SLO as the priority, tightest first",
            core=_vllm_priority,
            checked=VLLM.checked,
            compared=VLLM.compared,
            priority=_class_priority,
        ),
        Baseline(
            name="sglang",
            source="SGLang: FCFS, prefill first, new-token-ratio admission (Zheng et al., 2024)",
            core=_sglang,
            checked=SGLANG_CHECKED,
            compared=SGLANG_COMPARED,
        ),
        Baseline(
            name="sglang-lpm",
            source="SGLang: longest prefix match, otherwise as sglang",
            core=_sglang_lpm,
            checked=SGLANG_CHECKED,
            compared=f"{SGLANG_COMPARED}, in order of arrival; its own order with none",
        ),
        Baseline(
            name="lightllm",
            source="LightLLM: past-future admission (Gong et al., ASPLOS 2025)",
            core=_lightllm,
            checked="ModelTC/lightllm, `req_queue/chunked_prefill/impl.py` at 0593659 and the options of its server",
        ),
        Baseline(
            name="sarathi-fcfs",
            source="Sarathi-Serve (OSDI 2024): FCFS, chunks of 512",
            core=_sarathi,
            checked=SARATHI_CHECKED,
        ),
        Baseline(
            name="sarathi-edf",
            source="Sarathi by first-token deadline (Niyama §4)",
            core=_sarathi_edf,
            priority=_first_token_deadline,
            checked=SARATHI_CHECKED,
        ),
        Baseline(
            name="sarathi-srpf",
            source="Sarathi by shortest remaining prompt (Niyama §4)",
            core=_sarathi_srpf,
            priority=_prompt,
            checked=SARATHI_CHECKED,
        ),
        Baseline(
            name="niyama",
            source="Niyama: all its mechanisms, tokens paced from the first on",
            core=_niyama,
            request=paced,
            checked="`microsoft/sarathi-serve`, branch niyama_asplos2026; it has the sequences of the profile",
            compared="the ratios of its paper ([niyama.md](niyama.md))",
        ),
        Baseline(
            name="dynamo",
            source="NVIDIA Dynamo's router queue (wspt, a tier per TTFT SLO) before vLLM; our re-implementation",
            core=VLLM.core,
            router=_dynamo,
            checked="`ai-dynamo/dynamo`: `lib/kv-router/src/scheduling/policy.rs` at 01690d4 (order), the documented "
            "cost of an engine, the thresholds of its versions",
        ),
        Baseline(
            name="llm-d",
            source="llm-d's endpoint picker (SLO deadline order, SLO headroom) before vLLM; our re-implementation",
            core=VLLM.core,
            router=_llmd,
            predicts=True,
            checked="`llm-d/llm-d-inference-scheduler` at 520af47: `flowcontrol/ordering/slodeadline`, "
            "`saturationdetector/utilization`, `filter/sloheadroomtier`, `scorer/latency`",
        ),
    )
}


def predicts(system: str) -> bool:
    """Tells whether a system is a baseline that decides by predicted lengths or costs."""
    return system in BASELINES and BASELINES[system].predicts
