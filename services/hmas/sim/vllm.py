"""vLLM's own scheduler, first come, first served, without a mesh: what operators have before they have H-MAS."""

from hmas.engine.core import EngineCore
from hmas.engine.core.profile import EngineProfile
from hmas.sim.processes.fleet import Baseline, FleetSetting

SEQS, SEQS_LARGE = 256, 1024
LARGE_GB = 70 * 2**30 / 1e9  # a card of this memory has the larger default, unless it is an A100


def vllm_defaults(profile: EngineProfile) -> EngineProfile:
    """Returns the profile with vLLM's default number of sequences for its card, at most its token budget. A profile
    that names no card keeps its own."""
    if profile.card_gb is None:
        return profile
    large = profile.card_gb >= LARGE_GB and "a100" not in profile.hardware.lower()
    seqs = SEQS_LARGE if large else SEQS
    return profile.with_limits(max_num_seqs=min(seqs, profile.limits.max_num_batched_tokens))


def _core(profile: EngineProfile, _: FleetSetting) -> EngineCore:
    return EngineCore(vllm_defaults(profile).with_limits(scheduling_policy="fcfs"))


VLLM = Baseline(
    name="vllm",
    source="vLLM V1: FCFS, chunked prefill, preemption by recompute (Kwon et al., SOSP 2023)",
    core=_core,
    checked="vLLM's defaults by card (`EngineArgs.get_batch_defaults` of vllm/engine/arg_utils.py, as documented)",
    compared="a real vLLM on the CPU, FCFS: throughput, TTFT and TPOT ([fidelity.md](fidelity.md))",
)
