"""The rule-based selector: the main failure pattern in V_long determines the topology (H-MAS §3.4.1, App. C.2)."""

from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import ShareView, VLong
from hmas.meta.agent.config import RulesConfig
from hmas.meta.agent.selectors.selector import Choice

_UNUSUAL = frozenset({TopologyName.FCFS, TopologyName.WFQ})  # left as soon as no pattern calls for them
_OTHER = "other"  # stands for all tenants that the view does not name, so it is never counted as a starved tenant


class RulesSelector:
    """Chooses a topology by fixed rules, without memory: V_long is smooth, and the agent adds dwell and rollback.

    In doubt it keeps the topology in force. MaxOnTime orders by deadlines while all can be met and gives up the
    costliest requests when they cannot, so it suits every pattern of late first tokens. Without it (`usual` SJF, as in
    H-MAS), shortest work first keeps the most requests on time under sustained overload; deadline order is for pools
    that could meet all deadlines, because under overload it serves requests that are almost late anyway.
    """

    name = "rules"

    def __init__(self, config: RulesConfig) -> None:
        self._config = config

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        """Returns the choice of the first rule that matches the view."""
        c = self._config
        settled = sum(share.settled for share in view.tenants)
        if settled < c.min_settled:
            return _keep(current, f"{settled} requests settled, too few to judge")
        if (starved := self._starved(view, current)) is not None:
            jain = f"Jain index {view.jain_index:.2f}"
            return Choice(TopologyName.WFQ, Hints(), f"tenant {starved} is served below its share, {jain}")
        if view.violation_rate <= c.calm_violation:
            return self._calm(current)
        if view.ttft_violation_rate >= c.busy_violation:
            return self._late_first_tokens(view)
        return self._undecided(view, current)

    def _late_first_tokens(self, view: VLong) -> Choice:
        c = self._config
        late = f"{view.ttft_violation_rate:.0%} of first tokens late"
        if c.usual is TopologyName.MAX_ON_TIME:
            return Choice(c.usual, c.hints, f"{late}: the most on time")
        backlog_s = view.queued / max(view.arrival_rps, 1e-9)
        if view.mismatch_mean >= c.overload_mismatch or backlog_s >= c.overload_backlog_s:
            reason = f"{late} in overload: M_rho {view.mismatch_mean:.2f}, backlog {backlog_s:.1f} s"
            return Choice(TopologyName.SJF, Hints(), reason)
        if view.mismatch_p95 >= c.burst_mismatch:
            return Choice(TopologyName.SJF, Hints(), f"{late} in bursts: M_rho p95 {view.mismatch_p95:.2f}")
        if view.predicted_total_cv >= c.heavy_cv:
            reason = f"{late} behind long work: CV of work {view.predicted_total_cv:.2f}"
            return Choice(TopologyName.TWO_LANE, Hints(), reason)
        if view.mismatch_p95 <= c.slack_mismatch and backlog_s <= c.slack_backlog_s:
            return Choice(TopologyName.EDF, Hints(), f"{late} without overload: order by deadline")
        return Choice(TopologyName.SJF, Hints(), f"{late} near capacity")

    def _calm(self, current: Choice) -> Choice:
        if current.topology in _UNUSUAL:
            return Choice(self._config.usual, self._config.hints, "calm: back to the usual topology")
        return _keep(current, "calm")

    def _undecided(self, view: VLong, current: Choice) -> Choice:
        if current.topology in _UNUSUAL:
            return Choice(self._config.usual, self._config.hints, "no failure pattern: the usual topology")
        if view.tpot_violation_rate > view.ttft_violation_rate:
            return _keep(current, "late tokens are regulated by Statera, not by order")
        return _keep(current, "no dominant failure pattern")

    def _starved(self, view: VLong, current: Choice) -> str | None:
        """Returns a tenant that is served clearly less than its weight and meets clearly fewer SLOs than the best
        tenant, or None. Little service alone is not unfair, because the tenant may have asked for little.
        """
        c = self._config
        limit = c.fair_jain if current.topology is TopologyName.WFQ else c.unfair_jain
        rows = [s for s in view.tenants if s.name != _OTHER and s.settled >= c.min_tenant_settled]
        if len(rows) < 2 or view.jain_index >= limit:
            return None
        served = [s.tokens_served / s.weight for s in rows]
        mean, best = sum(served) / len(served), max(map(_ok_rate, rows))
        for row, share in zip(rows, served, strict=True):
            if share < c.starved_share * mean and _ok_rate(row) < c.starved_ok * best:
                return row.name
        return None


def _ok_rate(share: ShareView) -> float:
    return share.ok / share.settled


def _keep(current: Choice, reason: str) -> Choice:
    return Choice(current.topology, current.hints, f"kept: {reason}")
