"""The systems of Niyama §4: Sarathi's baselines for a shared cluster, with chunks of 256 tokens, and Niyama with its
mechanisms added one by one."""

from collections.abc import Callable

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.sim.processes.fleet import Baseline, FleetSetting
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.baselines.niyama import NiyamaConfig, NiyamaCore
from hmas_lab.sim.baselines.niyama_client import cumulative, due_s
from hmas_lab.sim.baselines.sarathi import Key, SarathiCore, remaining_prompt, request_priority

PROFILE = "llama3-8b-a100x1"
SHARED_CHUNK = 256  # tokens; steps stay within the TPOT of 50 ms of the strictest class


def _sarathi(key: Key | None) -> Callable[[EngineProfile, FleetSetting], EngineCore]:
    def core(profile: EngineProfile, _: FleetSetting) -> EngineCore:
        chunked = profile.with_limits(max_num_batched_tokens=SHARED_CHUNK)
        return EngineCore(chunked) if key is None else SarathiCore(chunked, key)

    return core


def _niyama(config: NiyamaConfig) -> Callable[[EngineProfile, FleetSetting], EngineCore]:
    return lambda profile, _: NiyamaCore(profile, config)


def _prompt(offered: OfferedRequest) -> float:
    return float(offered.request.prompt_tokens)


EDF = (0.0, 0.0)  # alpha 0 to 0: the remaining work has no weight, so the order is EDF
FIXED = (68.0, 68.0)  # alpha in the public code: 0.008 s per prompt token, at its 8500 tokens/s
SYSTEMS: dict[str, Baseline] = {
    b.name: b
    for b in (
        Baseline(name="sarathi-fcfs", source="Sarathi-FCFS", core=_sarathi(None)),
        Baseline(name="sarathi-edf", source="Sarathi-EDF", core=_sarathi(request_priority), priority=due_s),
        Baseline(name="sarathi-srpf", source="Sarathi-SRPF", core=_sarathi(remaining_prompt), priority=_prompt),
        Baseline(
            name="dc", source="Niyama (DC)", core=_niyama(NiyamaConfig(relegation=False, alpha=EDF)), request=cumulative
        ),
        Baseline(name="dc+er", source="Niyama (DC+ER)", core=_niyama(NiyamaConfig(alpha=EDF)), request=cumulative),
        Baseline(name="niyama", source="Niyama (DC+ER+HP)", core=_niyama(NiyamaConfig()), request=cumulative),
        Baseline(
            name="fixed-alpha", source="alpha fixed at 68", core=_niyama(NiyamaConfig(alpha=FIXED)), request=cumulative
        ),
        Baseline(
            name="steep-alpha",
            source="alpha up to 512",
            core=_niyama(NiyamaConfig(alpha=(0.0, 512.0))),
            request=cumulative,
        ),
    )
}
