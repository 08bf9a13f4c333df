"""Prometheus metrics of perception."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from hmas.runtime.batching import SECONDS_BUCKETS


class PerceptionMetrics:
    """Prometheus metrics of how many prompts the backend and the prior answered, and of the time of batches."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.prompts = Counter(
            "hmas_perception_prompts_total", "Prompts answered, by what made the tags", ["source"], registry=registry
        )
        self.fallbacks = Counter(
            "hmas_perception_fallbacks_total", "Prompts that the prior answered", ["reason"], registry=registry
        )
        self.batch_seconds = Histogram(
            "hmas_perception_batch_seconds",
            "Seconds per batch",
            buckets=SECONDS_BUCKETS,
            registry=registry,
        )
