"""Prometheus finds the services of an embedded mesh in a file that is written at each start and removed at its end."""

import json
from pathlib import Path

import pytest
from prometheus_client import Counter

from hmas.mesh.options import MeshOptions
from hmas.mesh.processes import make_plan
from hmas.mesh.scrape_file import forget_scrape_file, scrape_file, write_scrape_file
from hmas.mesh.state import read_state
from hmas.mesh.supervisor import Mesh
from hmas.runtime.ops import metrics_page


def test_each_service_is_a_target_with_its_own_name(tmp_path: Path) -> None:
    plan = make_plan(MeshOptions(port=0, data_dir=tmp_path))
    write_scrape_file(tmp_path, plan.ops_urls)
    groups = json.loads(scrape_file(tmp_path).read_text())
    assert {group["labels"]["instance"] for group in groups} == {
        "gateway", "perception", "prediction", "qos", "meta", "statera", "worker-1", "worker-2",
    }  # fmt: skip
    for group in groups:
        assert group["labels"]["job"] == "hmas"
        assert [f"http://{target}" for target in group["targets"]] == [plan.ops_urls[group["labels"]["instance"]]]
    assert sorted(path.name for path in tmp_path.glob("prometheus*")) == ["prometheus.json"]


async def test_a_mesh_writes_it_once_it_serves_and_takes_it_away(tmp_path: Path) -> None:
    mesh = Mesh(MeshOptions(port=0, data_dir=tmp_path, emulated=1))
    mesh.plan.state({}).write(tmp_path)
    write_scrape_file(tmp_path, {"gateway": "http://127.0.0.1:1"})
    await mesh.stop()
    assert not scrape_file(tmp_path).exists()
    forget_scrape_file(tmp_path)  # twice is no error
    with pytest.raises(Exception, match="no mesh runs here"):
        read_state(tmp_path)


async def test_metrics_say_which_version_runs_and_have_no_second_series_for_a_counter() -> None:
    counter = Counter("hmas_test_scraped", "A counter of this test", ["kind"])
    counter.labels("a").inc()
    page = metrics_page().decode()
    assert 'hmas_test_scraped_total{kind="a"} 1.0' in page
    assert "_created" not in page
    (line,) = [line for line in page.splitlines() if line.startswith("hmas_build_info{")]
    assert 'version="' in line
    assert 'wire="' in line
    assert line.endswith(" 1.0")
