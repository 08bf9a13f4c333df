"""Prometheus metrics of the decisions."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from hmas.contracts.control import AuditRecord, TopologyDecision, TopologyName


class MetaMetrics:
    """Prometheus metrics of the topology in force in each pool, and of the audit records by kind."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._topology = Gauge(
            "hmas_meta_topology", "1 for the topology in force", ["pool", "topology"], registry=registry
        )
        self._bypass = Gauge("hmas_meta_bypass", "1 during an emergency bypass", ["pool"], registry=registry)
        self._classes = Gauge(
            "hmas_meta_pace_classes",
            "Pace classes of the layout in force; 1 while it is mixed",
            ["pool"],
            registry=registry,
        )
        self._records = Counter(
            "hmas_meta_decisions_total", "Audit records by kind", ["pool", "kind", "selector"], registry=registry
        )

    def show(self, decision: TopologyDecision) -> None:
        self._bypass.labels(decision.pool).set(decision.bypass)
        self._classes.labels(decision.pool).set(len(decision.layout.cuts_s) + 1)
        for topology in TopologyName:
            self._topology.labels(decision.pool, topology.value).set(topology is decision.topology)

    def count(self, record: AuditRecord) -> None:
        self._records.labels(record.pool, record.kind, record.selector).inc()
