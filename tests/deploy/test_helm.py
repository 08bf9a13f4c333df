"""The Helm chart, rendered by Helm: every document keeps its schema, values are checked, and what is set arrives."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.mesh.nats_server import find_nats_server
from hmas.runtime.setting_names import SETTINGS
from hmas.wire.permissions import USERS
from hmas.worker.discovery.file import parse_engines
from hmas.worker.discovery.source import DnsSource, FileSource, KubernetesSource, source_of

pytestmark = pytest.mark.deploy
CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "hmas"
VERSIONS = ("1.35", "1.36", "1.37")
URLS = ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
OPERATOR_KINDS = {"PodMonitor", "ScaledObject"}  # of the Prometheus operator and of KEDA
SERVICE = ("engines.model=Qwen/Qwen3-8B", "engines.service=vllm")
EVERYTHING = (
    *SERVICE, "engines.namespace=engines", "engines.apiKeySecret=key", "gateway.tenantsSecret=tenants", "mode=observe",
    "keda.enabled=true", "keda.engines.name=vllm", "podMonitor.enabled=true", "engines.aliases={a,b}",
    "engines.hardware=H100x2", "engines.maxNumSeqs=64", "nats.storage.className=fast", "worker.env.HMAS_SEED=1",
)  # fmt: skip
PLAIN = (*SERVICE, "networkPolicy.enabled=false", "nats.create=false", "secrets.create=false",
         "nats.url=nats://nats:4222", "worker.replicas=1")  # fmt: skip


def helm() -> str:
    """`make deploy-check` puts one beside the interpreter where there is none."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: `make deploy-check` installs one, or put one on PATH")
    return found


def template(*values: str) -> subprocess.CompletedProcess[str]:
    sets = [argument for value in values for argument in ("--set", value)]
    command = [helm(), "template", "mesh", str(CHART), "--namespace", "serving", *sets]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rendered(*values: str) -> list[dict[str, Any]]:
    done = template(*values)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def containers(documents: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Returns the one container of each workload."""
    pods = [d["spec"]["template"]["spec"] for d in documents if d["kind"] in ("Deployment", "StatefulSet")]
    return {pod["containers"][0]["name"]: pod["containers"][0] for pod in pods}


def environment(documents: list[dict[str, Any]], service: str) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in containers(documents)[service]["env"]}


@pytest.mark.parametrize("values", [SERVICE, EVERYTHING, PLAIN], ids=["service", "everything", "plain"])
def test_every_document_of_the_chart_keeps_its_schema(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    for document in documents:
        for version in VERSIONS:
            if document["kind"] not in OPERATOR_KINDS:
                kubernetes_validate.validate(document, version, strict=True)
    names = [(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents]
    assert len(set(names)) == len(names)
    services = {"gateway", "worker", "perception", "prediction", "qos", "meta", "statera"}
    assert containers(documents).keys() == services | (set() if values is PLAIN else {"nats"})


def test_pods_of_the_chart_are_locked_down_probed_and_drained() -> None:
    documents = rendered(*EVERYTHING)
    for document in documents:
        if document["kind"] not in ("Deployment", "StatefulSet"):
            continue
        pod = document["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        assert container["resources"]["limits"]["memory"]
        assert {"startupProbe", "livenessProbe", "readinessProbe"} <= container.keys()
        assert pod["automountServiceAccountToken"] is (container["name"] == "worker")  # which finds engines by it
    gateway = next(d for d in documents if d["kind"] == "Deployment" and d["metadata"]["name"] == "mesh-gateway")
    drain_s = float(environment(documents, "gateway")["HMAS_DRAIN_GRACE_S"])
    assert gateway["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > drain_s + 5
    assert "replicas" not in gateway["spec"]  # the autoscaler's


@pytest.mark.parametrize("values", [EVERYTHING, PLAIN], ids=["everything", "plain"])
def test_settings_and_secrets_of_the_chart_exist(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    names = {name for service in containers(documents) for name in environment(documents, service)}
    names |= set(next(d["data"] for d in documents if (d["kind"], d["metadata"]["name"]) == ("ConfigMap", "mesh-mesh")))
    assert {name for name in names if name.startswith("HMAS_")} - SETTINGS == set()
    made = {d["metadata"]["name"]: d["data"].keys() for d in documents if d["kind"] == "Secret"}
    if values is EVERYTHING:
        wanted = {f"hmas-nats-{user.name}": {"nats_password"} for user in USERS} | {"hmas-mesh": {"mesh_secret"}}
        assert {name: set(keys) for name, keys in made.items()} == wanted
    else:
        assert not made


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("engines.service=vllm", KubernetesSource("kubernetes.io/service-name=vllm", "serving", 8000)),
        ("engines.selector=app=vllm", KubernetesSource("app=vllm", "serving", 8000)),
        ("engines.dns=vllm-headless", DnsSource("vllm-headless", 8000)),
        (f"engines.urls={{{','.join(URLS)}}}", FileSource(Path("/etc/hmas/engines/engines.yaml"))),
    ],
)  # fmt: skip
def test_workers_find_and_gateways_use_the_engines_named(value: str, source: object) -> None:
    documents = rendered("engines.model=m", value)
    assert source_of(environment(documents, "worker")["HMAS_ENGINES"]) == source
    rules = parse_rules(environment(documents, "gateway")["HMAS_ENGINE_ENDPOINTS"])
    assert AllowedEndpoints(rules).key_of("http://10.0.0.1:8000") is not None
    file = [d for d in documents if d["metadata"]["name"] == "mesh-engines" and d["kind"] == "ConfigMap"]
    roles = [d for d in documents if d["kind"] == "Role"]
    if isinstance(source, FileSource):
        assert [e.url for e in parse_engines(file[0]["data"]["engines.yaml"].encode())] == URLS
        assert "/etc/hmas/engines" in [m["mountPath"] for m in containers(documents)["worker"]["volumeMounts"]]
    assert bool(roles) is isinstance(source, KubernetesSource)
    for role in roles:
        assert role["rules"] == [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("engines.model=m",), "engines"),  # no engine
        (("engines.service=vllm",), "model"),
        ((*SERVICE, "engines.dns=other"), "engines"),  # two sources
        ((*SERVICE, "mode=off"), "mode"),
        ((*SERVICE, "worker.env.FOO=1"), "FOO"),
        ((*SERVICE, "gatway.replicas=1"), "gatway"),
        ((*SERVICE, "gateway.replicas=0"), "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(values: tuple[str, ...], message: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert message in done.stderr


def test_nats_of_the_chart_takes_its_configuration(tmp_path: Path) -> None:
    documents = rendered(*EVERYTHING)
    config = next(d for d in documents if d["kind"] == "ConfigMap" and d["metadata"]["name"] == "mesh-nats")
    path = tmp_path / "nats.conf"
    path.write_text(config["data"]["nats.conf"].replace("/data", str(tmp_path)))
    passwords = {each["name"]: f"p{n}" for n, each in enumerate(containers(documents)["nats"]["env"])}
    check = [str(find_nats_server()), "-t", "-c", str(path)]
    assert subprocess.run(check, env={**os.environ, **passwords}, capture_output=True, timeout=60).returncode == 0
    assert subprocess.run(check, capture_output=True, timeout=60).returncode != 0  # each user has a password
    assert set(re.findall(r"\$(NATS_PASSWORD_\w+)", path.read_text())) == passwords.keys()


def test_every_value_has_a_schema_and_lint_is_content() -> None:
    done = subprocess.run(
        [helm(), "lint", "--strict", str(CHART), "--set", ",".join(SERVICE)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout
