"""Prometheus metrics of perception."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram

from hmas.runtime.batching import SECONDS_BUCKETS


class PerceptionMetrics:
    """Who answered how many prompts, and how long the backend took."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.prompts = Counter(
            "hmas_perception_prompts_total", "Prompts answered, by who made the tags", ["source"], registry=registry
        )
        self.fallbacks = Counter(
            "hmas_perception_fallbacks_total", "Prompts that the prior answered", ["reason"], registry=registry
        )
        self.batch_seconds = Histogram(
            "hmas_perception_batch_seconds", "One batch in the backend", buckets=SECONDS_BUCKETS, registry=registry
        )
