"""Prometheus metrics of the decisions."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from hmas.contracts.control import AuditRecord, LayoutDecision, TopologyDecision, TopologyName
from hmas.contracts.pool_plan import PlanDecision
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.runtime.series import NamedSeries


class MetaMetrics:
    """Prometheus metrics of the topology in force in each pool, and of the audit records by kind."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._series, self._decided, self._plan, self._gains = (NamedSeries() for _ in range(4))
        self._topology = Gauge(
            "hmas_meta_topology", "1 for the topology in force", ["pool", "topology"], registry=registry
        )
        self._bypass = Gauge("hmas_meta_bypass", "1 during an emergency bypass", ["pool"], registry=registry)
        self._classes = Gauge(
            "hmas_meta_pace_classes",
            "Pace classes of the layout that was decided; 1 while it is mixed",
            ["pool"],
            registry=registry,
        )
        self._replicas = Gauge(
            "hmas_plan_replicas", "Engines of an instance type that should run now, for what scales them", ["type"],
            registry=registry,
        )  # fmt: skip
        self._wanted = Gauge(
            "hmas_plan_wanted_replicas", "Engines of an instance type that the plan in force has in the end", ["type"],
            registry=registry,
        )  # fmt: skip
        self._on_time = Gauge(
            "hmas_meta_on_time_share",
            "Where the mesh only observes: share of a pool's last requests that was on time (was), and that would have "
            "been as scheduled (scheduled), with the ends of its interval (low, high); only what may be believed",
            ["pool", "how"],
            registry=registry,
        )
        self._abstains = Gauge(
            "hmas_meta_foretelling_abstains",
            "1 while it cannot be said what scheduling would bring a pool that is only observed",
            ["pool"],
            registry=registry,
        )
        self._records = Counter(
            "hmas_meta_decisions_total", "Audit records by kind", ["pool", "kind", "selector"], registry=registry
        )

    def show(self, decision: TopologyDecision) -> None:
        pool, shown = decision.pool, decision.topology.value
        self._decided.forget(pool)  # also the topology of a package that was shown
        self._decided.of(pool, self._bypass, pool).set(decision.bypass)
        for name in {*(each.value for each in TopologyName), shown}:
            self._decided.of(pool, self._topology, pool, name).set(name == shown)

    def show_layout(self, decision: LayoutDecision) -> None:
        self._series.of(decision.pool, self._classes, decision.pool).set(len(decision.layout.cuts_s) + 1)

    def show_plan(self, decision: PlanDecision) -> None:
        self._plan.keep(())
        for each in decision.ordered:
            self._plan.of(each.type, self._replicas, each.type).set(each.count)
        for each in (group for plan in decision.plans for group in plan.groups):
            self._plan.of(each.type, self._wanted, each.type).set(each.count)

    def show_gain(self, gain: SchedulingGain) -> None:
        self._gains.forget(gain.pool)
        self._gains.of(gain.pool, self._abstains, gain.pool).set(bool(gain.abstains))
        shares = {} if gain.abstains else {"scheduled": gain.scheduled, "low": gain.low, "high": gain.high}
        for how, share in (({"was": gain.was} if gain.requests else {}) | shares).items():
            self._gains.of(gain.pool, self._on_time, gain.pool, how).set(share)

    def count(self, record: AuditRecord) -> None:
        self._series.of(record.pool, self._records, record.pool, record.kind, record.selector).inc()
