"""A mesh from one file: its flags and settings are in force, and Prometheus' file names pages that can be read."""

import json
from pathlib import Path

import httpx
import pytest

from tests.conftest import OPS_HEADERS, running_mesh

pytestmark = pytest.mark.e2e
FILE = """\
up:
  emulated: 1
  model: from-a-file
gateway:
  max_body_bytes: 2000
every_service:
  record_steps: 5
"""


def test_a_mesh_follows_its_file_and_its_pages_are_found(tmp_path: Path) -> None:
    config, data = tmp_path / "hmas.yaml", tmp_path / "data"
    config.write_text(FILE)
    with running_mesh(data, "--config", str(config)) as mesh:
        with httpx.Client(base_url=mesh.url) as client:
            assert [card["id"] for card in client.get("/v1/models").json()["data"]] == ["from-a-file"]
            body = {"model": "from-a-file", "messages": [{"role": "user", "content": "x" * 2000}]}
            assert client.post("/v1/chat/completions", json=body).status_code == 413
        groups = json.loads((data / "prometheus.json").read_text())
        assert len(groups) == len(mesh.state["ops_urls"])
        for group in groups:
            url = f"http://{group['targets'][0]}"
            page = httpx.get(f"{url}/metrics", headers=OPS_HEADERS[url]).text
            assert "\nhmas_build_info{" in page
            assert "_created" not in page
    assert not (data / "prometheus.json").exists()
