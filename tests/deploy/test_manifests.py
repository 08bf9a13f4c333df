"""What Kubernetes and Compose are given: rendered by their own tools, checked against published schemas."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from yamllint import linter
from yamllint.config import YamlLintConfig

from hmas.mesh.services import SERVICE_SETTINGS

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("emulated", "vllm", "sglang")
VERSIONS = ("1.35", "1.36", "1.37")
# No schema is published with Kubernetes itself.
OPERATOR_KINDS = {"PodMonitor", "PrometheusRule"}
OVERRIDES = ("docker-compose.vllm.yml", "docker-compose.sglang.yml")


def kubectl() -> str:
    """`make deploy-check` puts one beside the interpreter where there is none."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl: `make deploy-check` installs one, or put one on PATH")
    return found


def render(folder: Path) -> list[dict[str, Any]]:
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "deprecated" not in done.stderr.lower()
    return [document for document in yaml.safe_load_all(done.stdout) if document]


@pytest.fixture(scope="module", params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """An overlay with every component, as an operator would combine them."""
    folder = KUBERNETES / "overlays" / f".check-{request.param}"
    shutil.copytree(KUBERNETES / "overlays" / request.param, folder)
    try:
        kustomization = folder / "kustomization.yaml"
        components = sorted(f"../../components/{p.name}" for p in (KUBERNETES / "components").iterdir())
        text = {**yaml.safe_load(kustomization.read_text()), "components": components}
        kustomization.write_text(yaml.safe_dump(text))
        return render(folder)
    finally:
        shutil.rmtree(folder)


def test_all_of_it_lives_in_one_namespace(overlay: list[dict[str, Any]]) -> None:
    found = {(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in overlay}
    assert {f for f in found if f[2] != "hmas"} == {("Namespace", "hmas", None)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_keeps_its_schema(overlay: list[dict[str, Any]], version: str) -> None:
    kinds = [document["kind"] for document in overlay]
    assert {"Deployment", "StatefulSet", "Service", "PodDisruptionBudget", "HorizontalPodAutoscaler", "NetworkPolicy",
            "ConfigMap", *OPERATOR_KINDS} <= set(kinds)  # fmt: skip
    for document in overlay:
        if document["kind"] not in OPERATOR_KINDS:
            kubernetes_validate.validate(document, version, strict=True)


def test_a_wrong_document_is_found() -> None:
    bad = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replica": 1}}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(bad, VERSIONS[-1], strict=True)


def workloads(documents: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def test_pods_are_locked_down_probed_and_drained(overlay: list[dict[str, Any]]) -> None:
    names = set()
    for name, pod in workloads(overlay):
        names.add(name)
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], (name, container["name"])
            assert context["capabilities"]["drop"] == ["ALL"]
            assert container["resources"]["limits"]["memory"]
            if container["name"] != "plugin":
                assert "livenessProbe" in container, (name, container["name"])
        main = pod["containers"][0]
        assert "readinessProbe" in main
        drain_s = next((float(e["value"]) for e in main["env"] if e["name"] == "HMAS_DRAIN_GRACE_S"), 20.0)
        assert pod.get("terminationGracePeriodSeconds", 30) > drain_s
    assert names == {"gateway", "perception", "prediction", "qos", "meta", "statera", "engine"}


def known_settings() -> set[str]:
    return {f"HMAS_{name.upper()}" for settings in SERVICE_SETTINGS.values() for name in settings.model_fields}


ELSEWHERE = {"HMAS_CONTROL_BLOCK"}  # read inside the engine


def test_settings_exist(overlay: list[dict[str, Any]]) -> None:
    names = {
        variable["name"]
        for _, pod in workloads(overlay)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        for variable in container.get("env", ())
    }
    common = next(d for d in overlay if d["kind"] == "ConfigMap" and d["metadata"]["name"].startswith("hmas-"))
    names |= set(common["data"])
    mine = {name for name in names if name.startswith("HMAS_")}
    assert mine - known_settings() - ELSEWHERE == set()


def test_secrets_are_files(overlay: list[dict[str, Any]]) -> None:
    for name, pod in workloads(overlay):
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in str(variable), name


def test_compose_settings_exist() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    for override in OVERRIDES:
        services = {**services, override: {}}
        for name, service in yaml.safe_load((ROOT / override).read_text())["services"].items():
            services[f"{override}:{name}"] = service
    names = {name for service in services.values() for name in service.get("environment") or {}}
    mine = {name for name in names if name.startswith("HMAS_")}
    assert len(mine) > 10
    assert mine - known_settings() - ELSEWHERE == set()


@pytest.mark.parametrize("override", OVERRIDES)
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


def test_prometheus_scrapes_every_service() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {t.split(":")[0] for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert targets == set(services) - {"init", "nats", "keys", "prometheus", "grafana"}


def test_promtool_accepts_the_rules() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool here")
    for check in (["rules", "alerts.yml"], ["config", "prometheus.yml"]):
        done = subprocess.run(
            ["promtool", "check", *check], cwd=ROOT / "deploy/prometheus", capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


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
    written = {ROOT / "deploy/prometheus/prometheusrule.yaml"}
    paths = {*ROOT.glob("docker-compose*.yml"), *(ROOT / "deploy").rglob("*.y*ml")} - written
    assert len(paths) > 20
    found = [f"{p.relative_to(ROOT)}:{f}" for p in sorted(paths) for f in linter.run(p.read_text(), config)]
    assert found == []
