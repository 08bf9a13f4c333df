"""Prometheus metrics of prediction."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from hmas.runtime.batching import SECONDS_BUCKETS


class PredictionMetrics:
    """Prometheus metrics of how many costs the model and the linear profile gave, and of how measurements correct
    them."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self.queries = Counter("hmas_prediction_queries_total", "Costs predicted", registry=registry)
        self.fallbacks = Counter(
            "hmas_prediction_fallbacks_total", "Costs of the linear profile instead of the model", ["reason"],
            registry=registry,
        )  # fmt: skip
        self._scale = Gauge(
            "hmas_prediction_scale", "Factor on the model's times for a worker", ["worker", "cost"], registry=registry
        )
        self.batch_seconds = Histogram(
            "hmas_prediction_batch_seconds", "Time of a batch in the model", buckets=SECONDS_BUCKETS, registry=registry
        )

    def show_scale(self, worker: str, ttft: float, tpot: float) -> None:
        self._scale.labels(worker, "ttft").set(ttft)
        self._scale.labels(worker, "tpot").set(tpot)
