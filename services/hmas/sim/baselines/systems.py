"""The table of baselines, by the name under which `hmas sim` and experiment files know them."""

from collections.abc import Callable
from dataclasses import dataclass

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.engine.core.sequence import EngineRequest
from hmas.sim.baselines.lightllm import LightLlmCore
from hmas.sim.baselines.niyama import NiyamaConfig, NiyamaCore
from hmas.sim.baselines.niyama_client import paced
from hmas.sim.baselines.sarathi import SarathiCore, remaining_prompt, request_priority
from hmas.sim.baselines.sglang import LpmQueue, SglangCore
from hmas.sim.workload import OfferedRequest

SARATHI_CHUNK = 512


@dataclass(frozen=True, slots=True)
class FleetSetting:
    """What a baseline's core is told beside its profile: the largest `max_tokens` in the workload, which SGLang and
    LightLLM assume where an answer's length is unknown, and the seed of LightLLM's draws."""

    max_tokens: int
    seed: int


def _arrival(_: OfferedRequest) -> float:
    return 0.0


def _class_priority(offered: OfferedRequest) -> float:
    return offered.slo.ttft_s


def _first_token_deadline(offered: OfferedRequest) -> float:
    return offered.request.arrival_s + offered.slo.ttft_s


def _prompt(offered: OfferedRequest) -> float:
    return float(offered.request.prompt_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """A serving system to compare with. `source` says what it is and where it was published. `core` makes one engine.
    `priority` gives the priority that the client states with a request, lower first; only engines that reorder read
    it. `request` makes the engine's request from the offered one and that priority."""

    name: str
    source: str
    core: Callable[[EngineProfile, FleetSetting], EngineCore]
    priority: Callable[[OfferedRequest], float] = _arrival
    request: Callable[[OfferedRequest, float], EngineRequest] = OfferedRequest.engine_request


def _vllm(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(profile.with_limits(scheduling_policy="fcfs"))


def _vllm_priority(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(profile.with_limits(scheduling_policy="priority"))


def _sglang(profile: EngineProfile, setting: FleetSetting) -> EngineCore:
    return SglangCore(profile, setting.max_tokens)


def _sglang_lpm(profile: EngineProfile, setting: FleetSetting) -> EngineCore:
    queue = LpmQueue()
    core = SglangCore(profile, setting.max_tokens, waiting=queue)
    queue.cache = core.kv
    return core


def _lightllm(profile: EngineProfile, setting: FleetSetting) -> EngineCore:
    return LightLlmCore(profile, setting.max_tokens, setting.seed)


def _chunked(profile: EngineProfile) -> EngineProfile:
    return profile.with_limits(max_num_batched_tokens=max(SARATHI_CHUNK, profile.limits.max_num_seqs))


def _sarathi(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(_chunked(profile))


def _sarathi_edf(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return SarathiCore(_chunked(profile), request_priority)


def _sarathi_srpf(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return SarathiCore(_chunked(profile), remaining_prompt)


def _niyama(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return NiyamaCore(profile, NiyamaConfig())


BASELINES: dict[str, Baseline] = {
    b.name: b
    for b in (
        Baseline(
            name="vllm",
            source="vLLM V1: FCFS, chunked prefill, preemption by recompute (Kwon et al., SOSP 2023)",
            core=_vllm,
        ),
        Baseline(
            name="vllm-priority",
            source="vLLM --scheduling-policy priority; clients state their TTFT SLO as the priority, tightest first",
            core=_vllm_priority,
            priority=_class_priority,
        ),
        Baseline(
            name="sglang",
            source="SGLang: FCFS, prefill first, new-token-ratio admission (Zheng et al., 2024)",
            core=_sglang,
        ),
        Baseline(name="sglang-lpm", source="SGLang: longest prefix match, otherwise as sglang", core=_sglang_lpm),
        Baseline(name="lightllm", source="LightLLM: past-future admission (Gong et al., ASPLOS 2025)", core=_lightllm),
        Baseline(name="sarathi-fcfs", source="Sarathi-Serve (OSDI 2024): FCFS, chunks of 512", core=_sarathi),
        Baseline(
            name="sarathi-edf",
            source="Sarathi by first-token deadline (Niyama §4)",
            core=_sarathi_edf,
            priority=_first_token_deadline,
        ),
        Baseline(
            name="sarathi-srpf",
            source="Sarathi by shortest remaining prompt (Niyama §4)",
            core=_sarathi_srpf,
            priority=_prompt,
        ),
        Baseline(
            name="niyama",
            source="Niyama: all its mechanisms, tokens paced from the first on",
            core=_niyama,
            request=paced,
        ),
    )
}
