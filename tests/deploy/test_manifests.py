"""What Kubernetes and Compose are given: rendered by their own tools, checked against published schemas."""

import json
import os
import re
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

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.mesh.certificates import make_certificates
from hmas.mesh.nats_server import find_nats_server
from hmas.mesh.secrets import make_secrets
from hmas.runtime.setting_names import SETTINGS
from hmas.wire.permissions import USERS

pytestmark = pytest.mark.deploy
ROOT = Path(__file__).resolve().parents[2]
KUBERNETES = ROOT / "deploy" / "kubernetes"
OVERLAYS = ("emulated", "vllm", "sglang")
VERSIONS = ("1.35", "1.36", "1.37")
# No schema is published with Kubernetes itself.
OPERATOR_KINDS = {"PodMonitor", "PrometheusRule", "Certificate", "Issuer"}
OVERRIDES = (
    "docker-compose.vllm.yml", "docker-compose.sglang.yml", "docker-compose.tls.yml", "docker-compose.discovery.yml",
)  # fmt: skip
ENGINES = OVERRIDES[:2]


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
    assert mine - SETTINGS - ELSEWHERE == set()


def test_references_name_what_was_set_before(overlay: list[dict[str, Any]]) -> None:
    """Kubernetes leaves `$(NAME)` as it is where NAME comes later."""
    maps = {d["metadata"]["name"]: set(d["data"]) for d in overlay if d["kind"] == "ConfigMap"}
    referred = 0
    for name, pod in workloads(overlay):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            known = {key for source in container.get("envFrom", ()) for key in maps[source["configMapRef"]["name"]]}
            for variable in container.get("env", ()):
                wanted = set(re.findall(r"\$\((\w+)\)", str(variable.get("value", ""))))
                assert wanted <= known, (name, variable["name"])
                known.add(variable["name"])
                referred += len(wanted)
            assert (
                set(re.findall(r"\$\((\w+)\)", str(container.get("command", [])) + str(container.get("args")))) <= known
            )
    assert referred > 0


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector of Kubernetes selects what has these labels; an empty one selects everything."""
    chosen = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In", "a selector that this check does not know"
        chosen = chosen and labels.get(rule["key"]) in rule["values"]
    return chosen


def admitted(documents: list[dict[str, Any]], port: int, target: str) -> set[str]:
    """Who may connect to `port` of the workload `target`: names of workloads, `nats`, `outside` for pods of other
    namespaces, and `anyone` for whoever has the address."""
    pods = {
        d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
        for d in documents
        if "template" in d.get("spec", {})
    }
    pods["nats"] = {"app.kubernetes.io/name": "nats"}
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
    mine = [
        p
        for p in policies
        if "Ingress" in p.get("policyTypes", ["Ingress"]) and _matches(p["podSelector"], pods[target])
    ]
    if not mine:
        return {"anyone"}
    found = set()
    for rule in (rule for policy in mine for rule in policy.get("ingress", ())):
        if "ports" in rule and not any(p.get("port", port) in (port, "api") for p in rule["ports"]):
            continue
        if "from" not in rule:
            found.add("anyone")
        for peer in rule.get("from", ()):
            if "ipBlock" in peer:
                found.add("anyone")
            elif "namespaceSelector" in peer:
                found.add("outside")
            else:
                found |= {name for name, labels in pods.items() if _matches(peer["podSelector"], labels)}
    return found


def test_who_may_reach_whom(overlay: list[dict[str, Any]]) -> None:
    """An engine's worker is in its pod, where no policy applies."""
    assert admitted(overlay, 8000, "engine") == {"gateway"}
    assert admitted(overlay, 50052, "engine") == {"gateway"}
    assert admitted(overlay, 9100, "engine") == {"outside"}
    assert admitted(overlay, 50051, "perception") == admitted(overlay, 50051, "prediction") == {"gateway"}
    assert admitted(overlay, 8000, "gateway") == {"anyone"}
    assert admitted(overlay, 9100, "gateway") == {"outside"}  # tenants' names and traffic
    assert admitted(overlay, 22, "engine") == set()


def reached(documents: list[dict[str, Any]], source: str) -> set[tuple[str, int]]:
    """Where the pods of a workload may connect to: workloads, `nats`, `dns` or `anywhere`, each with a port."""
    pods = {
        d["metadata"]["name"]: d["spec"]["template"]["metadata"]["labels"]
        for d in documents
        if "template" in d.get("spec", {})
    }
    pods["nats"] = {"app.kubernetes.io/name": "nats"}
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
    mine = [p for p in policies if "Egress" in p.get("policyTypes", ()) and _matches(p["podSelector"], pods[source])]
    assert mine, f"no policy says what {source} may reach"
    found = set()
    for rule in (rule for policy in mine for rule in policy.get("egress", ())):
        for port in rule["ports"]:
            for peer in rule.get("to", [None]):
                if peer is None:
                    names = {"anywhere"}
                elif "podSelector" in peer:
                    names = {name for name, labels in pods.items() if _matches(peer["podSelector"], labels)}
                else:
                    assert port["port"] == 53
                    names = {"dns"}
                found |= {(name, port["port"]) for name in names}
    return found


def test_who_may_reach_out(overlay: list[dict[str, Any]]) -> None:
    common = {("dns", 53), ("nats", 4222)}
    cognition = {("perception", 50051), ("prediction", 50051)}
    assert reached(overlay, "gateway") == common | cognition | {("engine", 50052), ("engine", 8000)}
    for name in ("perception", "prediction", "qos", "statera"):
        assert reached(overlay, name) == common
    for name in ("engine", "meta"):  # with the component https-egress, which the check includes
        assert reached(overlay, name) == common | {("anywhere", 443)}
    assert reached(overlay, "nats") == {("dns", 53), ("nats", 6222)}
    base = [d for d in overlay if d["metadata"]["name"] != "https-egress"]
    assert reached(base, "engine") == reached(base, "meta") == common


USER_OF = {"engine": "worker"}
RECOGNISED = {"gateway", "engine", "perception", "prediction"}


def test_each_service_has_its_own_secrets_and_no_other(overlay: list[dict[str, Any]]) -> None:
    for name, pod in workloads(overlay):
        user = USER_OF.get(name, name)
        settings = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
        assert settings["HMAS_NATS_USER"] == user
        told = {volume["name"]: volume for volume in pod["volumes"]}
        sources = {source["secret"]["name"] for source in told["secrets"]["projected"]["sources"]}
        assert sources == {f"hmas-nats-{user}"} | ({"hmas-mesh"} if name in RECOGNISED else set())
        assert ("HMAS_MESH_SECRET_FILE" in settings) == (name in RECOGNISED)
        assert told["tls"]["secret"]["secretName"] == f"hmas-tls-{user}"
        others = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        tenants = {"hmas-tenants", "hmas-tls-api"} if name == "gateway" else set()
        assert others - {"hmas-engine", "huggingface"} == {f"hmas-tls-{user}"} | tenants


def test_certificates_are_for_the_names_by_which_services_are_known(overlay: list[dict[str, Any]]) -> None:
    made = {d["metadata"]["name"]: d["spec"] for d in overlay if d["kind"] == "Certificate"}
    issued = {name: spec for name, spec in made.items() if not spec.get("isCA")}
    for name, spec in issued.items():
        assert name in spec["dnsNames"] or name == "api"
        assert spec["secretName"] == f"hmas-tls-{name}"
        assert spec["usages"] == (["server auth"] if name == "api" else ["server auth", "client auth"])
    wanted = {USER_OF.get(name, name) for name, _ in workloads(overlay)} | {"nats", "api"}
    assert set(issued) == wanted
    issuers = {d["metadata"]["name"] for d in overlay if d["kind"] == "Issuer"}
    assert {spec["issuerRef"]["name"] for spec in made.values()} <= issuers


@pytest.mark.parametrize(
    ("planted", "found"),
    [
        ({"podSelector": {}, "ingress": [{"ports": [{"port": 8000}]}]}, {"gateway", "anyone"}),
        ({"podSelector": {}, "ingress": [{}]}, {"gateway", "anyone"}),
        (
            {
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "engine"}},
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app.kubernetes.io/name": "meta"}}}]}],
            },
            {"gateway", "meta"},
        ),
        ({"podSelector": {}, "ingress": [{"from": [{"namespaceSelector": {}}]}]}, {"gateway", "outside"}),
    ],
)
def test_a_policy_that_opens_the_engines_is_found(
    overlay: list[dict[str, Any]], planted: dict[str, Any], found: set[str]
) -> None:
    assert admitted([*overlay, {"kind": "NetworkPolicy", "spec": planted}], 8000, "engine") == found
    without = [d for d in overlay if d["metadata"]["name"] != "gateway-to-engines"]
    assert admitted(without, 8000, "engine") == set()
    assert admitted([d for d in overlay if d["kind"] != "NetworkPolicy"], 8000, "engine") == {"anyone"}


def test_gateways_and_workers_agree_on_engines_and_keys(overlay: list[dict[str, Any]]) -> None:
    """The address by which a worker names its engine is one that gateways may use, and both have its key."""
    pods = dict(workloads(overlay))
    gateway, worker = (pods[name]["containers"][0] for name in ("gateway", "engine"))
    settings = [{v["name"]: v.get("value", "") for v in container["env"]} for container in (gateway, worker)]
    (engine,) = json.loads(settings[1]["HMAS_ENGINES"].replace("$(MAX_NUM_SEQS)", "1"))
    allowed = AllowedEndpoints(parse_rules(settings[0]["HMAS_ENGINE_ENDPOINTS"]))
    assert allowed.key_of(engine["advertise_url"].replace("$(POD)", "engine-0")) is not None
    assert allowed.key_of("http://engine-0.engine.example:8000") is None
    services = {d["metadata"]["name"]: d["spec"] for d in overlay if d["kind"] == "Service"}
    assert services["engine"]["publishNotReadyAddresses"], "engines of a dead worker would lose their names"
    for container, values in zip((gateway, worker), settings, strict=True):
        folder = values["HMAS_ENGINE_API_KEY_FILE"].rpartition("/")[0]
        assert folder in {mount["mountPath"] for mount in container["volumeMounts"]}
    listens = next(c for c in pods["engine"]["initContainers"] if c["name"] == "engine")["args"]
    assert listens[listens.index("--host") + 1] == "0.0.0.0"


def test_secrets_are_files(overlay: list[dict[str, Any]]) -> None:
    for name, pod in workloads(overlay):
        for container in pod["containers"]:
            for variable in container.get("env", ()):
                assert "secretKeyRef" not in str(variable), name


def test_in_compose_gateways_workers_and_prometheus_reach_engines_and_nobody_else() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    engines = {f"engine-{number}" for number in (1, 2)}
    assert {n for n, s in services.items() if "engines" in s.get("networks", ())} - engines == {
        "gateway", "worker-1", "worker-2", "prometheus",
    }  # fmt: skip
    assert all(services[name]["networks"] == ["engines"] for name in engines)
    allowed = AllowedEndpoints(parse_rules(services["gateway"]["environment"]["HMAS_ENGINE_ENDPOINTS"]))
    for file in ("docker-compose.yml", *OVERRIDES):
        for name, service in yaml.safe_load((ROOT / file).read_text())["services"].items():
            if name.startswith("worker") and "{" in service["environment"].get("HMAS_ENGINES", ""):
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


@pytest.mark.parametrize("told", ["nats.conf", "nats-tls.conf", "kubernetes"])
def test_nats_accepts_its_configuration(told: str, tmp_path: Path) -> None:
    """The real server reads what Compose mounts, and what the chart makes of its values."""
    env = {"PATH": os.environ["PATH"]}
    if told == "kubernetes":
        values = yaml.safe_load((KUBERNETES / "nats-users.yaml").read_text())
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
    written = config if told == "kubernetes" else tmp_path / "nats" / "nats_users.conf"
    assert all(f'"{user.name}"' in written.read_text() for user in USERS)


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


def test_prometheus_scrapes_every_service() -> None:
    config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text())
    targets = {t.split(":")[0] for job in config["scrape_configs"] for s in job["static_configs"] for t in s["targets"]}
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    assert targets == set(services) - {"init", "nats", "keys", "hmas", "console", "prometheus", "grafana"}


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
    templates = set((ROOT / "deploy/helm/hmas/templates").iterdir())  # Go templates; what they render is tested beside
    paths = {*ROOT.glob("docker-compose*.yml"), *(ROOT / "deploy").rglob("*.y*ml")} - written - templates
    assert len(paths) > 20
    found = [f"{p.relative_to(ROOT)}:{f}" for p in sorted(paths) for f in linter.run(p.read_text(), config)]
    assert found == []
