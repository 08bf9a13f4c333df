"""What Compose and NATS are given, and the YAML of all that is deployed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.mesh.certificates import make_certificates
from hmas.mesh.nats_server import find_nats_server
from hmas.mesh.secrets import make_secrets
from hmas.runtime.setting_names import SETTINGS
from hmas.wire.permissions import USERS

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).resolve().parents[2]
NATS = ROOT / "deploy" / "helm" / "nats"
OVERRIDES = (
    "docker-compose.vllm.yml", "docker-compose.sglang.yml", "docker-compose.tls.yml", "docker-compose.discovery.yml",
    "docker-compose.pd.yml",
)  # fmt: skip
ENGINES = OVERRIDES[:2]
ELSEWHERE = {"HMAS_CONTROL_BLOCK"}  # read inside the engine


def test_in_compose_gateways_workers_and_prometheus_reach_engines_and_nobody_else() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    engines = {f"engine-{number}" for number in (1, 2)}
    assert {n for n, s in services.items() if "engines" in s.get("networks", ())} - engines == {
        "gateway", "worker-1", "worker-2", "prometheus",
    }  # fmt: skip
    assert all(services[name]["networks"] == ["engines"] for name in engines)
    for file in ("docker-compose.yml", *OVERRIDES):
        overridden = yaml.safe_load((ROOT / file).read_text())["services"]
        settings = services["gateway"]["environment"] | (overridden.get("gateway", {}).get("environment") or {})
        allowed = AllowedEndpoints(parse_rules(settings["HMAS_ENGINE_ENDPOINTS"]))
        for name, service in overridden.items():
            if name.startswith("worker") and "{" in service.get("environment", {}).get("HMAS_ENGINES", ""):
                told = re.sub(r"\$\{[^}]*\}", "1", service["environment"]["HMAS_ENGINES"])
                assert all(allowed.key_of(engine["url"]) == "" for engine in json.loads(told)), (file, name)
    assert allowed.key_of("http://engine-1.example:8000") is None


def test_in_compose_each_service_has_its_own_secrets_and_no_other() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name, service in services.items():
        mounted = {v.split(":")[0] for v in service.get("volumes", ()) if v.startswith("secrets-")}
        user = {"worker-1": "worker", "worker-2": "worker", "hmas": "operator", "console": "operator"}.get(name, name)
        if name == "init":
            assert {f"secrets-{role}" for role in (*(user.name for user in USERS), "nats", "grafana")} == mounted
        elif name.startswith("engine") or name in ("keys", "prometheus"):
            assert mounted == set()
        else:
            assert mounted == {f"secrets-{user}"}, name
        environment = service.get("environment", {})
        assert environment.get("HMAS_NATS_USER", user) == user
        if "HMAS_MESH_SECRET_FILE" in environment:
            assert name in ("gateway", "worker-1", "worker-2", "perception", "prediction")


def test_in_compose_only_the_gateway_and_meta_reach_beyond_the_machine() -> None:
    told = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    inside = {name for name, network in told["networks"].items() if network and network.get("internal")}
    outside = {
        name
        for name, service in told["services"].items()
        if service.get("network_mode") != "none" and not set(service["networks"]) <= inside
    }
    assert outside == {"gateway", "meta", "console", "prometheus", "grafana"}


@pytest.mark.parametrize("told", ["nats.conf", "nats-tls.conf", "helm"])
def test_nats_accepts_its_configuration(told: str, tmp_path: Path) -> None:
    """The real server reads what Compose mounts, and what the NATS chart makes of its values."""
    env = {"PATH": os.environ["PATH"]}
    if told == "helm":
        values = yaml.safe_load((NATS / "users.yaml").read_text())
        merged = json.dumps(values["config"]["merge"])
        config = tmp_path / "nats.conf"
        config.write_text(re.sub(r'"<< (\$\w+) >>"', r"\1", merged))  # as the chart writes it
        variables = values["container"]["env"]
        assert {v["valueFrom"]["secretKeyRef"]["name"] for v in variables.values()} == {
            f"hmas-nats-{user.name}" for user in USERS
        }
        env |= {name: f"p{name.lower()}" for name in variables}
    else:
        make_secrets(tmp_path)
        make_certificates(tmp_path, 1)
        for file in ("nats.conf", "nats-tls.conf"):
            text = (ROOT / "deploy" / file).read_text().replace("/etc/nats/secrets", str(tmp_path / "nats"))
            (tmp_path / file).write_text(text.replace("/data", str(tmp_path / "data")))
        (tmp_path / "secrets").symlink_to(tmp_path / "nats")
        config = tmp_path / told
    done = subprocess.run(
        [str(find_nats_server()), "-t", "-c", str(config)], env=env, capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    written = config if told == "helm" else tmp_path / "nats" / "nats_users.conf"
    assert all(f'"{user.name}"' in written.read_text() for user in USERS)


def test_compose_hands_the_mode_on_and_lets_the_plug_in_order_vllms_queue() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for name in ("gateway", "worker-1", "worker-2"):
        assert "HMAS_MODE" in services[name]["environment"], name
    command = yaml.safe_load((ROOT / "docker-compose.vllm.yml").read_text())["services"]["engine-1"]["command"]
    assert "--scheduler-cls" in command
    assert "--scheduling-policy" not in command  # by priority the plug-in leaves the order alone


def test_compose_settings_exist() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for override in OVERRIDES:
        services = {**services, override: {}}
        for name, service in yaml.safe_load((ROOT / override).read_text())["services"].items():
            services[f"{override}:{name}"] = service
    names = {name for service in services.values() for name in service.get("environment") or {}}
    mine = {name for name in names if name.startswith("HMAS_")}
    assert len(mine) > 10
    assert mine - SETTINGS - ELSEWHERE == set()


@pytest.mark.parametrize("override", ENGINES)
def test_compose_overrides_merge(override: str) -> None:
    command = next(
        (c for c in (["docker", "compose"], ["docker-compose"])
         if shutil.which(c[0]) and not subprocess.run([*c, "version"], capture_output=True).returncode), None,
    )  # fmt: skip
    if command is None:
        pytest.skip("no docker compose here")
    files = ["-f", "docker-compose.yml", "-f", override]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HMAS_MODEL": "some/model"}
    done = subprocess.run([*command, *files, "config"], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    merged = yaml.safe_load(done.stdout)["services"]
    for name in ("engine-1", "engine-2"):
        assert "some/model" in merged[name]["command"]
        assert "hmas" not in merged[name]["image"]
        assert merged[name]["deploy"]["resources"]["reservations"]["devices"]
    without = {name: value for name, value in env.items() if name != "HMAS_MODEL"}
    refused = subprocess.run([*command, *files, "config"], cwd=ROOT, env=without, capture_output=True, text=True)
    assert refused.returncode != 0
    assert "HMAS_MODEL" in refused.stderr


def test_generated_files_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, "deploy/grafana/build.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_yaml_is_tidy() -> None:
    rules = dict.fromkeys(
        ("document-start", "braces", "brackets", "indentation", "truthy", "comments", "octal-values"), "disable"
    )
    config = YamlLintConfig(yaml.safe_dump({"extends": "default", "rules": {**rules, "line-length": {"max": 130}}}))
    written = {ROOT / "deploy/helm/hmas/files/prometheusrule.yaml"}
    templates = set((ROOT / "deploy/helm/hmas/templates").iterdir())  # Go templates; what they render is tested beside
    paths = {*ROOT.glob("docker-compose*.yml"), *(ROOT / "deploy").rglob("*.y*ml")} - written - templates
    assert len(paths) > 20
    found = [f"{p.relative_to(ROOT)}:{f}" for p in sorted(paths) for f in linter.run(p.read_text(), config)]
    assert found == []
