"""Names that come and go, honest or not, leave a bounded number of series in every process's metrics, and none of what
is gone."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from hmas.contracts.control import TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.meta.metrics import MetaMetrics
from hmas.prediction.metrics import PredictionMetrics
from hmas.qos.metrics import QosMetrics
from hmas.runtime.series import MOST_NAMES
from hmas.statera.metrics import StateraMetrics
from hmas.worker.metrics import WorkerMetrics
from tests.builders import views
from tests.builders.telemetry import worker_telemetry
from tests.console.heard import AUDIT, CONTROL, SAMPLE, decision

NAMES = [f'<script>{number}\n\x1b[2J"\\' for number in range(2 * MOST_NAMES)]


def worker(registry: CollectorRegistry) -> Callable[[str], None]:
    metrics = WorkerMetrics(registry)
    return lambda name: metrics.observe(worker_telemetry("w1", engines=(replace(SAMPLE, engine=name),)))


def statera(registry: CollectorRegistry) -> Callable[[str], None]:
    metrics = StateraMetrics(registry)
    return lambda name: metrics.show(
        replace(CONTROL, worker=name, engines=tuple(replace(each, engine=name) for each in CONTROL.engines))
    )


def qos(registry: CollectorRegistry) -> Callable[[str], None]:
    metrics = QosMetrics(registry)
    return lambda name: metrics.show(views.v_short(pool=name))


def meta(registry: CollectorRegistry) -> Callable[[str], None]:
    metrics = MetaMetrics(registry)

    def show(name: str) -> None:
        metrics.show(replace(decision(TopologyName.EDF), pool=name))
        metrics.count(replace(AUDIT, pool=name))

    return show


def prediction(registry: CollectorRegistry) -> Callable[[str], None]:
    metrics = PredictionMetrics(registry)
    return lambda name: metrics.show_scale(name, EngineKind(model=name, hardware=name), 1.0, 1.0)


def named(registry: CollectorRegistry, name: str) -> int:
    return sum(name in sample.labels.values() for metric in registry.collect() for sample in metric.samples)


@pytest.mark.parametrize("shows", [worker, statera, qos, meta, prediction])
def test_series_are_bounded(shows: Callable[[CollectorRegistry], Callable[[str], None]]) -> None:
    registry = CollectorRegistry()
    show = shows(registry)
    show(NAMES[0])
    once = named(registry, NAMES[0])
    assert once > 0
    for name in NAMES[1:]:
        show(name)
    assert named(registry, NAMES[0]) == 0
    assert named(registry, NAMES[-1]) == once
    hostile = sum(
        any("script" in value for value in sample.labels.values())
        for metric in registry.collect()
        for sample in metric.samples
    )
    assert hostile <= MOST_NAMES * once


def test_an_engine_that_is_gone_has_no_series_of_a_worker_or_of_statera() -> None:
    registry = CollectorRegistry()
    workers, statera_metrics = WorkerMetrics(registry), StateraMetrics(registry)
    other = tuple(replace(each, engine="other") for each in CONTROL.engines)
    gone = CONTROL.engines[0].engine
    for engines in (CONTROL.engines, other):
        workers.observe(worker_telemetry("w1", engines=tuple(replace(SAMPLE, engine=each.engine) for each in engines)))
        statera_metrics.show(replace(CONTROL, engines=engines))
    assert named(registry, gone) == 0
    assert named(registry, "other") > 10


def test_counts_of_a_pool_go_on() -> None:
    registry = CollectorRegistry()
    metrics = MetaMetrics(registry)
    for record in (AUDIT, replace(AUDIT, seq=2)):
        metrics.show(replace(decision(TopologyName.EDF), pool=record.pool))
        metrics.count(record)
    labels = {"pool": AUDIT.pool, "kind": AUDIT.kind, "selector": AUDIT.selector}
    assert registry.get_sample_value("hmas_meta_decisions_total", labels) == 2
