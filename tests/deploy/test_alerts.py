"""What the shipped alerts say and when, by Prometheus's own `promtool` (Debian's package `prometheus` has it)."""

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
CASES = Path(__file__).with_name("alerts_test.yml")
GROUPS = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}


def promtool(*args: str | Path) -> subprocess.CompletedProcess[str]:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool: `apt-get install prometheus` brings it")
    return subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("check", [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml")])
def test_prometheus_reads_them(check: tuple[str, str, str]) -> None:
    done = promtool(*check[:2], PROMETHEUS / check[2])
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_fires_when_it_should_and_not_before() -> None:
    done = promtool("test", "rules", CASES)
    assert done.returncode == 0, done.stdout + done.stderr


def cases() -> list[dict[str, Any]]:
    return [case for test in yaml.safe_load(CASES.read_text())["tests"] for case in test["alert_rule_test"]]


def test_each_has_a_time_at_which_it_fires_and_one_at_which_it_does_not() -> None:
    for fires in (True, False):
        assert {case["alertname"] for case in cases() if bool(case["exp_alerts"]) is fires} == set(ALERTS)


def never(rule: dict[str, Any]) -> dict[str, Any]:
    return {**rule, "expr": f"({rule['expr']}) and on () vector(1) > 2"}


def always(rule: dict[str, Any]) -> dict[str, Any]:
    return {"alert": rule["alert"], "expr": "vector(1)"}


@pytest.mark.parametrize("planted", [never, always])
def test_an_alert_that_is_wrong_is_found(tmp_path: Path, planted: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    groups = [{**group, "rules": [planted(rule) for rule in group["rules"]]} for group in GROUPS]
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump({"groups": groups}))
    (tmp_path / CASES.name).write_text(
        yaml.safe_dump({**yaml.safe_load(CASES.read_text()), "rule_files": ["alerts.yml"]})
    )
    done = promtool("test", "rules", tmp_path / CASES.name)
    assert done.returncode != 0
    assert set(re.findall(r"alertname: (\w+)", done.stdout + done.stderr)) == set(ALERTS)


def test_an_engine_used_without_its_worker_is_an_alert_within_half_a_minute() -> None:
    """The longest that a scrape, the next evaluation and the time that the alert waits can take."""
    (group,) = (group for group in GROUPS if ALERTS["HmasBypass"] in group["rules"])
    every = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())["global"]
    scrape_s, evaluation_s, for_s = (
        int(time.removesuffix("s"))
        for time in (every["scrape_interval"], group["interval"], ALERTS["HmasBypass"]["for"])
    )
    waits_s = -(-for_s // evaluation_s) * evaluation_s  # until an evaluation that comes so much later
    assert scrape_s + evaluation_s + waits_s <= 30
    assert ALERTS["HmasBypass"]["labels"]["severity"] == "critical"
