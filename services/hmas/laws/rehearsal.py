"""What is known of a pool's engines for a rehearsal, and a policy in words."""

from collections.abc import Iterable, Sequence

from hmas.contracts.registry import WorkerHeartbeat
from hmas.contracts.rehearsal import Policy, PoolFacts
from hmas.contracts.views import VLong
from hmas.laws.layout import described_split, place
from hmas.laws.pace import mean_pace


def pool_facts(
    heartbeats: Iterable[WorkerHeartbeat], view: VLong | None, order: Sequence[str] = (), least: int = 1
) -> PoolFacts | None:
    """Returns the facts of the engines that are up at these workers of one pool; None if there is none. The pace is
    known where at least `least` observations were made of each engine. Of several kinds of engines the weakest limits
    count. `order`: the places of engines in the order in which classes get them."""
    beats = [beat for beat in heartbeats if not beat.draining]
    workers = [[e for e in beat.engines if e.up] for beat in beats]
    engines = [engine for worker in workers for engine in worker]
    if not engines:
        return None
    rank = {each: i for i, each in enumerate(order)}
    places = [place(beat.worker, e.engine) for beat in beats for e in beat.engines if e.up]
    places.sort(key=lambda each: (rank.get(each, len(rank)), each))
    paces = {place(pace.worker, pace.engine): pace for pace in (view.paces if view else ()) if pace.observations}
    return PoolFacts(
        engines=len(engines),
        workers=sum(1 for worker in workers if worker),
        max_num_seqs=min(e.max_num_seqs for e in engines),
        max_model_len=min(e.max_model_len for e in engines),
        kv_capacity_tokens=min(e.kv_capacity_tokens for e in engines),
        block_size=engines[0].block_size,
        model=engines[0].model,
        hardware=engines[0].hardware,
        pace=None if view is None else mean_pace(view.paces, least),
        paces=tuple(paces[each] for each in places if each in paces),
    )


def described(policy: Policy) -> str:
    """Returns a policy in a few words."""
    parts = [policy.topology.value]
    if policy.hints.by_tokens:
        parts.append("for tokens")
    if policy.split.cuts_s:
        parts.append(described_split(policy.split))
    if policy.engines is not None:
        parts.append(f"{policy.engines} engine{'s' if policy.engines > 1 else ''}")
    for slo in policy.slos:
        limits = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s))
        parts.append(f"{slo.name} " + " ".join(f"{kind} {1e3 * limit:g} ms" for kind, limit in limits if limit))
    return ", ".join(parts)
