"""What is known of a pool's engines for a rehearsal, and a policy in words."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from hmas.contracts.pool_plan import InstanceType
from hmas.contracts.registry import EngineInfo, WorkerHeartbeat
from hmas.contracts.rehearsal import Policy, PoolEngine, PoolFacts
from hmas.contracts.views import PaceView, VLong
from hmas.laws.layout import described_split, engine_path, in_class_order
from hmas.laws.pace import PaceConfig, mean_pace, of_kinds, ranked

LIKE_KV = 1.25  # the KV memory of an engine and of its type differ at most by this factor


def pool_facts(
    heartbeats: Iterable[WorkerHeartbeat], view: VLong | None, order: Sequence[str] = (), least: int = 1
) -> PoolFacts | None:
    """Returns the facts of the engines that are up at these workers of one pool; None if there is none. The mean pace
    is known where at least `least` observations were made of each engine. `order`: the places of engines in the order
    in which classes get them; empty: in that of their steps, as far as they are known."""
    beats = [beat for beat in heartbeats if not beat.draining]
    up = {engine_path(beat.worker, e.engine): e for beat in beats for e in beat.engines if e.up}
    if not up:
        return None
    kinds = {each: engine.engine_kind for each, engine in up.items()}
    told = {engine_path(pace.worker, pace.engine): pace for pace in (view.paces if view else ()) if pace.observations}
    paces = of_kinds(told, kinds) | told
    places = in_class_order(up, order, kinds)
    if paces and not order:
        places = [each for each, _ in ranked(paces, places, PaceConfig())]
    return PoolFacts(
        engines=tuple(_pool_engine(up[each], paces.get(each)) for each in places),
        workers=sum(any(engine.up for engine in beat.engines) for beat in beats),
        pace=None if view is None else mean_pace(view.paces, least),
    )


def _pool_engine(engine: EngineInfo, pace: PaceView | None) -> PoolEngine:
    return PoolEngine(
        max_num_seqs=engine.max_num_seqs,
        max_model_len=engine.max_model_len,
        kv_capacity_tokens=engine.kv_capacity_tokens,
        block_size=engine.block_size,
        kind=engine.engine_kind,
        pace=pace,
    )


def typed(facts: PoolFacts, types: Sequence[InstanceType]) -> PoolFacts:
    """Returns the facts with the instance type of each engine, as far as one of `types`, which serve the pool's model,
    is like it: engines do not tell it. It has the cards that the engine's worker states, if it states any, and of these
    types the nearest KV memory, at most `LIKE_KV` times more or less. An engine that does not tell its memory must
    state the kind and number of its cards, such as H100x2."""
    return replace(facts, engines=tuple(replace(each, instance_type=_type_of(each, types)) for each in facts.engines))


def _type_of(engine: PoolEngine, types: Sequence[InstanceType]) -> InstanceType | None:
    stated = engine.kind.hardware.casefold()
    found = []
    for each in types:
        cards = each.hardware.casefold()
        exact = f"{cards}x{each.gpus}"
        tokens = engine.kv_capacity_tokens or (each.kv_tokens if stated == exact else 0)
        apart = _factor(tokens, each.kv_tokens)
        if stated in ("", "unknown", cards, exact) and apart <= LIKE_KV:
            found.append((apart, each))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _factor(tokens: int, other: int) -> float:
    """Returns how many times as large the larger number is."""
    return max(tokens, other) / max(1, min(tokens, other))


def described(policy: Policy) -> str:
    """Returns a policy in a few words."""
    parts = ["nothing scheduled" if policy.observes else policy.topology.value]
    if policy.hints.by_tokens and not policy.observes:
        parts.append("for tokens")
    if policy.split.cuts_s and not policy.observes:
        parts.append(described_split(policy.split))
    if isinstance(policy.engines, int):
        parts.append(f"{policy.engines} engine{'s' if policy.engines > 1 else ''}")
    elif policy.engines is not None:
        parts += [f"{each.count} x {each.instance_type.name}" for each in policy.engines]
    for slo in policy.slos:
        limits = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
        parts.append(f"{slo.name} " + " ".join(f"{kind} {1e3 * limit:g} ms" for kind, limit in limits if limit))
    return ", ".join(parts)
