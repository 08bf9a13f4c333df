"""The engines of a replay: of the pace that was measured of each, with its own limits."""

from collections.abc import Sequence
from itertools import cycle, islice

from hmas.contracts.rehearsal import PoolEngine, PoolFacts
from hmas.contracts.step_cost import StepCostModel
from hmas.contracts.views import PaceView
from hmas.engine.core.profile import EngineLimits, EngineProfile
from hmas.laws.pace import PaceConfig

CHUNK_TOKENS = 2048  # vLLM's default, which engines do not report
FITTED = "(fitted)"  # the name of a profile where the engine's instance type, whose name it has otherwise, is not known


def fitted_profiles(facts: PoolFacts) -> tuple[EngineProfile, ...]:
    """Returns the profile of each of a pool's engines by its measured pace, or by the pool's mean where none is known
    of it. Raises ValueError if neither is known."""
    return tuple(_fitted(each, each.pace or facts.pace) for each in facts.engines)


def _fitted(engine: PoolEngine, pace: PaceView | None) -> EngineProfile:
    if pace is None or pace.base_s <= 0.0:
        raise ValueError(
            "the pace of this pool's engines has not been measured yet: wait until they have worked for half a "
            "minute, or name a profile with --profile"
        )
    kind, block = engine.instance_type, engine.block_size or 16
    capacity = engine.kv_capacity_tokens or engine.max_num_seqs * engine.max_model_len
    blocks = max(1, capacity // block)
    tokens = CHUNK_TOKENS if kind is None else kind.max_num_batched_tokens
    return EngineProfile(
        name=FITTED if kind is None else kind.name,
        cost=StepCostModel(pace.base_s, pace.prompt_s, pace.sequence_s, pace.context_s),
        limits=EngineLimits(
            max_num_seqs=engine.max_num_seqs,
            max_num_batched_tokens=max(tokens, engine.max_num_seqs),
            block_size=block,
            num_gpu_blocks=blocks,
            max_model_len=min(engine.max_model_len, blocks * block),
            enable_prefix_caching=False,
        ),
        source="fitted to the pool's measured pace",
        model=engine.kind.model,
        hardware=engine.kind.hardware,
    )


def mix_of(profiles: Sequence[EngineProfile], engines: int) -> tuple[EngineProfile, ...]:
    """Returns the profiles of so many engines with the mix of `profiles`, in their order: of each kind as many as its
    share, rounded up or down. Engines of one kind with steps that are alike come in turn."""
    if _alike(profiles):
        return tuple(islice(cycle(profiles), engines))
    by_kind = sorted(range(len(profiles)), key=lambda i: _kind(profiles[i]))
    taken = sorted(by_kind[(2 * i + 1) * len(profiles) // (2 * engines)] for i in range(engines))
    return tuple(profiles[i] for i in taken)


def _alike(profiles: Sequence[EngineProfile]) -> bool:
    steps_s = [each.cost.c0_s for each in profiles]
    return len(set(map(_kind, profiles))) == 1 and max(steps_s) <= PaceConfig().alike * min(steps_s)


def _kind(profile: EngineProfile) -> tuple[str, str, str, int, int]:
    limits = profile.limits
    return profile.name, profile.model, profile.hardware, limits.num_gpu_blocks, limits.max_num_seqs


def numbered_profiles(profiles: Sequence[EngineProfile], workers: int) -> tuple[EngineProfile, ...]:
    """Returns the profiles by the numbers of their engines, so that the first engines by the names of their workers,
    which get them in turn, have the first profiles: classes get engines in the order of these names. Engines that are
    alike are left as they are."""
    if _alike(profiles):
        return tuple(profiles)
    by_worker = sorted(range(len(profiles)), key=lambda number: (number % workers, number))
    place = {number: i for i, number in enumerate(by_worker)}
    return tuple(profiles[place[number]] for number in range(len(profiles)))
