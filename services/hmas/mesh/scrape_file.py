"""The file `<data dir>/prometheus.json`: where Prometheus finds the metrics of an embedded mesh, whose ports are drawn
anew at each start. Prometheus reads it again when it changes (`file_sd_configs`)."""

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

JOB = "hmas"  # by which alerts and dashboards know the services


def scrape_file(data_dir: Path) -> Path:
    return data_dir / "prometheus.json"


def write_scrape_file(data_dir: Path, ops_urls: Mapping[str, str]) -> None:
    """Writes one target for each service; `ops_urls` has their pages by the names of their processes. The file is there
    as a whole or not at all. Raises OSError."""
    groups = [
        {"targets": [urlsplit(url).netloc], "labels": {"job": JOB, "instance": name}}
        for name, url in sorted(ops_urls.items())
    ]
    path = scrape_file(data_dir)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(groups, indent=2) + "\n")
    fresh.replace(path)


def forget_scrape_file(data_dir: Path) -> None:
    """Removes the file: another process may get the ports of a mesh that has stopped."""
    scrape_file(data_dir).unlink(missing_ok=True)
