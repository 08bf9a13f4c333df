"""Every query of every dashboard and alert names metrics and labels that exist."""

import re
from pathlib import Path

import pytest

from tests.deploy.chart import rendered
from tests.deploy.queries import Catalogue, Query, alert_queries, dashboard_queries, faults

pytestmark = pytest.mark.deploy


def of(expr: str, *labels: str) -> Query:
    return Query("test", expr, frozenset(labels))


def test_dashboards(catalogue: Catalogue, root: Path) -> None:
    paths = sorted((root / "deploy/grafana/dashboards").glob("*.json"))
    queries = [query for path in paths for query in dashboard_queries(path)]
    assert len(paths) >= 4
    assert len(queries) > 50
    assert [fault for query in queries for fault in faults(query, catalogue)] == []


def test_alerts(catalogue: Catalogue, root: Path) -> None:
    queries = list(alert_queries(root / "deploy/prometheus/alerts.yml"))
    assert len(queries) > 10
    assert [fault for query in queries for fault in faults(query, catalogue)] == []


def test_kedas_scaled_objects_ask_for_metrics_that_exist(catalogue: Catalogue) -> None:
    documents = rendered("engines.model=m", "engines.service=vllm", "keda.enabled=true", "keda.engines.name=vllm")
    triggers = [t["metadata"] for d in documents if d["kind"] == "ScaledObject" for t in d["spec"]["triggers"]]
    queries = [trigger["query"] for trigger in triggers if "query" in trigger]
    assert len(queries) == 2
    for query in queries:
        (name,) = re.findall(r"hmas_\w+", query)
        assert name in catalogue.labels


@pytest.mark.parametrize(
    ("query", "fault"),
    [
        (of("rate(hmas_gateway_request_total[5m])"), "nothing shows the metric hmas_gateway_request_total"),
        (of("sum(rate(hmas_gateway_settled_total[5m])"), "no PromQL"),
        (of('hmas_gateway_settled_total{tenants="a"}'), "has no label tenants"),
        (of("sum by (tenants) (hmas_gateway_settled_total)"), "no label tenants"),
        (of("hmas_worker_queued_requests", "worker"), "no label worker"),
        (of("1 - (hmas_nats_connected / hmas_nonsense)"), "nothing shows the metric hmas_nonsense"),
        (of("max_over_time(rate(hmas_nonsense[1m])[5m:])"), "nothing shows the metric hmas_nonsense"),
        (of("topk(3, hmas_nonsense)"), "nothing shows the metric hmas_nonsense"),
    ],
)
def test_wrong_queries_are_found(catalogue: Catalogue, query: Query, fault: str) -> None:
    found = faults(query, catalogue)
    assert len(found) == 1
    assert fault in found[0]


def test_right_queries_pass(catalogue: Catalogue) -> None:
    query = of('sum by (tenant) (rate(hmas_gateway_settled_total{verdict="ok"}[$__rate_interval]))', "tenant")
    assert faults(query, catalogue) == []
