"""What this process's metrics count, as Prometheus would read it."""

from prometheus_client import Counter, Gauge


def counted(metric: Counter | Gauge) -> float:
    """The value of a metric without labels, or of one of its children (`metric.labels(...)`)."""
    (value,) = (s.value for family in metric.collect() for s in family.samples if not s.name.endswith("_created"))
    return float(value)
