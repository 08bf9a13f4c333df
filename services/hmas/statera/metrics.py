"""Prometheus metrics of the control tuples."""

from prometheus_client import REGISTRY, CollectorRegistry, Gauge

from hmas.contracts.control import ControlTuple
from hmas.runtime.series import NamedSeries


class StateraMetrics:
    """Shows the last control tuple of each worker as Prometheus gauges."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._series = NamedSeries()
        labels = ["worker", "engine"]
        self._n_run = Gauge("hmas_statera_n_run", "Concurrency set-point N_run", labels, registry=registry)
        self._u_high = Gauge("hmas_statera_u_high", "Upper edge of the utilisation band", labels, registry=registry)
        self._factor = Gauge(
            "hmas_statera_fence_factor",
            "Conformal factor on the predicted 90 % quantile of the length, by predictor and prompt tokens",
            ["worker", "predictor", "prompt_upto"],
            registry=registry,
        )
        self._frozen = Gauge(
            "hmas_statera_frozen", "1 while the set-points are frozen by a bypass", ["worker"], registry=registry
        )

    def show(self, control: ControlTuple) -> None:
        worker = control.worker
        self._series.forget(worker)  # its engines may be others now
        self._series.of(worker, self._frozen, worker).set(control.frozen)
        for engine in control.engines:
            self._series.of(worker, self._n_run, worker, engine.engine).set(engine.n_run)
            self._series.of(worker, self._u_high, worker, engine.engine).set(engine.u_high)
        for table in (table for table in control.fence.tables if not table.tenant):
            for bucket in table.buckets:
                labels = (worker, table.version, str(bucket.prompt_upto))
                self._series.of(worker, self._factor, *labels).set(bucket.factor)
