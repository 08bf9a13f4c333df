"""Prometheus metrics of the views."""

from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from hmas.contracts.views import VShort
from hmas.runtime.series import NamedSeries

_GAUGES = {
    "queued": "Requests queued",
    "running": "Requests running",
    "kv_usage": "Share of the pool's KV cache in use",
    "utilisation": "Utilisation of the binding resource, mean over the window",
    "violation_rate": "Share of settled requests that missed an SLO",
    "ttft_violation_rate": "Share of settled requests that missed their TTFT SLO",
    "tpot_violation_rate": "Share of settled requests that missed their TPOT SLO",
    "arrival_rps": "Requests offered per second",
    "mismatch": "Arriving over served tokens, minus one (H-MAS Eq. 7)",
    "oldest_wait_s": "Longest wait of a queued request, seconds",
}


class QosMetrics:
    """Shows the latest V_short of each pool as Prometheus gauges."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._series = NamedSeries()
        self._gauges = {
            name: Gauge(f"hmas_qos_{name}", text, ["pool"], registry=registry) for name, text in _GAUGES.items()
        }
        self._ttft = Gauge("hmas_qos_ttft_p99_s", "Recent TTFT, 99 % quantile", ["pool"], registry=registry)
        self._tpot = Gauge("hmas_qos_tpot_p99_s", "Recent TPOT, 99 % quantile", ["pool"], registry=registry)

    def show(self, view: VShort) -> None:
        for name, gauge in self._gauges.items():
            self._series.of(view.pool, gauge, view.pool).set(getattr(view, name))
        self._series.of(view.pool, self._ttft, view.pool).set(view.ttft.p99_s)
        self._series.of(view.pool, self._tpot, view.pool).set(view.tpot.p99_s)
