"""Prometheus metrics of prediction."""

from collections.abc import Callable

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from hmas.contracts.engine_kind import EngineKind
from hmas.runtime.batching import SECONDS_BUCKETS
from hmas.runtime.series import NamedSeries


class PredictionMetrics:
    """Prometheus metrics of how many costs each model gave, how measurements correct them, and how good they are
    then."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._series = NamedSeries()
        self.answers = Counter(
            "hmas_prediction_answers_total", "Costs predicted, by the model that did it", ["model"], registry=registry
        )
        self.fallbacks = Counter(
            "hmas_prediction_fallbacks_total", "Costs of the linear profile instead of the model", ["reason"],
            registry=registry,
        )  # fmt: skip
        self._scale = Gauge(
            "hmas_prediction_scale",
            "Factor on the model's times for a kind of engine of a worker",
            ["worker", "model", "hardware", "cost"],
            registry=registry,
        )
        self._error = Gauge(
            "hmas_prediction_error",
            "Median |log(corrected prediction / measured time)| of a model over the last requests that finished",
            ["model", "cost"],
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "hmas_prediction_batch_seconds", "Time of a batch in the model", buckets=SECONDS_BUCKETS, registry=registry
        )

    def show_scale(self, worker: str, kind: EngineKind, ttft: float, tpot: float) -> None:
        for cost, factor in (("ttft", ttft), ("tpot", tpot)):
            self._series.of(worker, self._scale, worker, kind.model, kind.hardware, cost).set(factor)

    def show_error(self, model: str, cost: str, error: Callable[[], float]) -> None:
        self._error.labels(model, cost).set_function(error)
