"""What the agent tells: topology and layout in force in a pool, and a record of each decision."""

from hmas.contracts.control import AuditRecord, LayoutDecision, TopologyDecision
from hmas.contracts.control_agents import MetaEffect, PublishAudit, PublishLayout, PublishTopology
from hmas.contracts.views import VLong, VShort, view_json
from hmas.meta.agent.pool import PoolState
from hmas.meta.agent.state import MetaState


def publish_due(state: MetaState, pool: PoolState) -> list[MetaEffect]:
    """Publishes what is in force if it has changed or its repetition is due: the layout, and after it the topology,
    which at the end of a bypass puts both in force. They are no longer repeated once views have stopped to come, except
    under a pin."""
    in_force = pool.in_force(), pool.layout_in_force()
    blind = state.now_s - pool.view_s > state.config.view_stale_s and pool.pin is None
    repeat = state.now_s - pool.sent_s >= state.config.valid_for_s / 3.0
    if in_force == pool.sent and (blind or not repeat):
        return []
    state.seq += 1
    pool.sent, pool.sent_s = in_force, state.now_s
    return [PublishLayout(layout_of(state, pool)), PublishTopology(decision_of(state, pool))]


def layout_of(state: MetaState, pool: PoolState) -> LayoutDecision:
    f = pool.layout_in_force()
    return LayoutDecision(
        pool=pool.name,
        layout=f.layout,
        epoch=state.epoch or 0,
        seq=state.seq,
        valid_for_s=state.config.valid_for_s,
        reason=f.reason,
        selector=f.selector,
    )


def decision_of(state: MetaState, pool: PoolState) -> TopologyDecision:
    f = pool.in_force()
    return TopologyDecision(
        pool=pool.name,
        topology=f.topology,
        hints=f.hints,
        bypass=f.bypass,
        epoch=state.epoch or 0,
        seq=state.seq,
        valid_for_s=state.config.valid_for_s,
        reason=f.reason,
        selector=f.selector,
    )


def audit(
    state: MetaState,
    pool: PoolState,
    kind: str,
    decision: str,
    reason: str,
    selector: str,
    view: VShort | VLong | None,
    *,
    predicted: float | None = None,
    observed: float | None = None,
) -> list[MetaEffect]:
    """Records a decision with the view that it was based on. `predicted` and `observed`: gains of a rehearsed switch,
    as differences of shares on time."""
    record = AuditRecord(
        source="meta",
        pool=pool.name,
        kind=kind,
        decision=str(decision),
        reason=reason,
        selector=selector,
        view_json=view_json(view),
        epoch=state.epoch or 0,
        seq=state.seq,
        predicted_gain=predicted,
        observed_gain=observed,
    )
    return [PublishAudit(record)]
