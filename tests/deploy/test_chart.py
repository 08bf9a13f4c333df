"""What the chart makes of the values of deploy/helm/values, alone and with all that a production wants beside them."""

import json
import re
from typing import Any

import pytest

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.runtime.setting_names import SETTINGS
from hmas.wire.permissions import SERVICES, USERS
from hmas.worker.settings import EngineSettings
from tests.deploy.chart import (
    SERVICE,
    VALUES,
    VERSIONS,
    Documents,
    containers,
    environment,
    faults,
    of_kind,
    rendered,
    template,
    workloads,
)
from tests.deploy.test_compose_files import ELSEWHERE

pytestmark = pytest.mark.deploy
FILES = ("emulated", "vllm", "sglang", "attach", "inference-gateway")
OWN = FILES[:3]
ROLES = {role.value for role in SERVICES} - {"worker"}
RECOGNISED = {"gateway", "worker", "perception", "prediction"}
PICKER = ("picker.enabled=true", "picker.inferencePool.create=true", "picker.httpRoute.gateway=inference-gateway")


SETS = [(f, *more) for f in FILES for more in ((), ("production",))]
PAIRED = [("emulated", "two-engines"), ("vllm", "two-engines", "production")]


@pytest.fixture(scope="module", params=[*SETS, *PAIRED], ids="+".join)
def told(request: pytest.FixtureRequest) -> tuple[str, ...]:
    values: tuple[str, ...] = request.param
    return values


@pytest.fixture(scope="module")
def documents(told: tuple[str, ...]) -> Documents:
    return rendered(*told)


def test_every_file_of_values_is_looked_at() -> None:
    assert {path.stem for path in VALUES.iterdir()} == {*FILES, "production", "two-engines"}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_document_keeps_its_schema(documents: Documents, version: str) -> None:
    assert [(d["kind"], d["metadata"]["name"], fault) for d in documents for fault in faults(d, version)] == []
    names = [(d["kind"], d["metadata"]["name"]) for d in documents]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("kind", "path", "wrong"),
    [
        ("Deployment", ("spec", "replica"), 1),
        ("StatefulSet", ("spec", "template", "spec", "initContainers"), {}),
        ("InferencePool", ("spec", "selector", "app"), "vllm"),  # as the first versions of it had it
        ("InferencePool", ("spec", "targetPortNumber"), 8000),
        ("InferencePool", ("spec", "endpointPickerRef", "port"), 9002),
        ("HTTPRoute", ("spec", "rules", 0, "timeouts", "request"), "forever"),
        ("ScaledObject", ("spec", "triggers", 0, "metadata", "value"), 70),  # KEDA wants text
        ("Certificate", ("spec", "dnsName"), "gateway"),
        ("PodMonitor", ("spec", "podMetricsEndpoints", 0, "ports"), "ops"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expression"), "up"),
    ],
)
def test_a_wrong_document_is_found(kind: str, path: tuple[Any, ...], wrong: object) -> None:
    documents = json.loads(json.dumps(rendered("emulated", "production", *PICKER)))
    document = next(iter(of_kind(documents, kind).values()))
    assert not faults(document, VERSIONS[-1])
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = wrong
    assert faults(document, VERSIONS[-1])


def test_pods_are_locked_down_probed_and_drained(told: tuple[str, ...], documents: Documents) -> None:
    roles = dict(workloads(documents))
    own, production = told[0] in OWN and "two-engines" not in told, "production" in told
    console = {"console"} if told[0] in ("emulated", "attach") else set()
    workers = {"engine", "worker"} if "two-engines" in told else {"engine" if own else "worker"}
    assert roles.keys() == ROLES | console | workers | (set() if production else {"nats"})
    for role, pod in roles.items():
        # The Pod Security Standard `restricted`.
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        kinds = {kind for volume in pod["volumes"] for kind in volume.keys() - {"name"}}
        assert kinds <= {"configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret"}
        assert pod["automountServiceAccountToken"] is (role == "worker" and not own)  # which finds engines by it
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            context = container["securityContext"]
            assert context["readOnlyRootFilesystem"], (role, container["name"])
            assert context["capabilities"]["drop"] == ["ALL"]
            assert context["allowPrivilegeEscalation"] is False
            assert container["resources"]["limits"]["memory"]
            assert (container["name"] == "plugin") or container["livenessProbe"]
            mounted = {mount["name"] for mount in container["volumeMounts"]}
            assert mounted <= {v["name"] for v in pod["volumes"]} | {"data" if role == "nats" else ""}
        (main,) = pod["containers"]
        assert main["startupProbe"]
        assert main["readinessProbe"]
        drain_s = next((float(e["value"]) for e in main["env"] if e["name"] == "HMAS_DRAIN_GRACE_S"), 20.0)
        assert pod.get("terminationGracePeriodSeconds", 30) > drain_s


def test_settings_exist(documents: Documents) -> None:
    names = {
        variable["name"]
        for _, pod in workloads(documents)
        for container in (*pod.get("initContainers", ()), *pod["containers"])
        for variable in container.get("env", ())
    } | set(of_kind(documents, "ConfigMap")["mesh-mesh"]["data"])
    mine = {name for name in names if name.startswith("HMAS_")}
    assert len(mine) > 10
    assert mine - SETTINGS - ELSEWHERE == set()


def test_references_name_what_was_set_before(told: tuple[str, ...], documents: Documents) -> None:
    """Kubernetes leaves `$(NAME)` as it is where NAME comes later."""
    maps = {name: set(d["data"]) for name, d in of_kind(documents, "ConfigMap").items()}
    referred = 0
    for role, pod in workloads(documents):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            known = {key for source in container.get("envFrom", ()) for key in maps[source["configMapRef"]["name"]]}
            for variable in container.get("env", ()):
                wanted = set(re.findall(r"\$\((\w+)\)", str(variable.get("value", ""))))
                assert wanted <= known, (role, variable["name"])
                known.add(variable["name"])
                referred += len(wanted)
            words = [*container.get("command", ()), *container.get("args", ())]
            assert set(re.findall(r"\$\((\w+)\)", str(words))) <= known
    assert bool(referred) is (told[0] in OWN and "two-engines" not in told)


# --- who reaches whom ---


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector of Kubernetes selects what has these labels; an empty one selects everything."""
    chosen = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    for rule in selector.get("matchExpressions", ()):
        assert rule["operator"] == "In", "a selector that this check does not know"
        chosen = chosen and labels.get(rule["key"]) in rule["values"]
    return chosen


def _pods(documents: Documents) -> dict[str, dict[str, str]]:
    """The labels of each workload's pods, by its role, and those of strangers in the same namespace."""
    labels = [d["spec"]["template"]["metadata"]["labels"] for d in documents if "template" in d.get("spec", {})]
    other = {"app.kubernetes.io/part-of": "hmas", "app.kubernetes.io/instance": "other"}
    strangers = {"another mesh": {**other, "app.kubernetes.io/name": "gateway"}, "stranger": {"app": "x"}}
    return {each["app.kubernetes.io/name"]: each for each in labels} | strangers


def admitted(documents: Documents, port: int, target: str) -> set[str]:
    """Who may connect to `port` of the workload `target`: roles, `outside` for pods of other namespaces, and `anyone`
    for whoever has the address."""
    pods = _pods(documents)
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
    mine = [p for p in policies if "Ingress" in p["policyTypes"] and _matches(p["podSelector"], pods[target])]
    if not mine:
        return {"anyone"}
    found = set()
    for rule in (rule for policy in mine for rule in policy.get("ingress", ())):
        if "ports" in rule and port not in [p["port"] for p in rule["ports"]]:
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


def reached(documents: Documents, source: str) -> set[tuple[str, int]]:
    """Where the pods of a workload may connect to: roles, `dns`, `engines` (pods of their namespace) or `anywhere`, and
    at which port; port 0 is any."""
    pods = _pods(documents)
    policies = [d["spec"] for d in documents if d["kind"] == "NetworkPolicy"]
    mine = [p for p in policies if "Egress" in p["policyTypes"] and _matches(p["podSelector"], pods[source])]
    assert mine, f"no policy says what {source} may reach"
    found = set()
    for rule in (rule for policy in mine for rule in policy.get("egress", ())):
        for port in [p["port"] for p in rule.get("ports", ({"port": 0},))]:
            for peer in rule.get("to", [None]):
                if peer is None:
                    names = {"anywhere"}
                elif "podSelector" in peer:
                    names = {name for name, labels in pods.items() if _matches(peer["podSelector"], labels)}
                else:
                    names = {"dns" if port == 53 else "engines"}
                found |= {(name, port) for name in names}
    return found


def test_who_may_reach_whom(told: tuple[str, ...], documents: Documents) -> None:
    own, picks = told[0] in OWN and "two-engines" not in told, told[0] == "inference-gateway"
    worker = "engine" if own else "worker"
    if "two-engines" in told:
        assert admitted(documents, 8000, "engine") == {"gateway", "worker", "engine"}
        assert admitted(documents, 5600, "engine") == {"engine"}  # where NIXL's side channel is
    assert admitted(documents, 50052, worker) == {"gateway"}
    assert admitted(documents, 8000, worker) == ({"gateway"} if own else set())
    assert admitted(documents, 9100, worker) == {"outside"}
    assert admitted(documents, 22, worker) == set()
    assert admitted(documents, 50051, "perception") == admitted(documents, 50051, "prediction") == {"gateway"}
    assert admitted(documents, 8000, "gateway") == {"anyone"}
    assert admitted(documents, 9002, "gateway") == ({"anyone"} if picks else set())
    assert admitted(documents, 9100, "gateway") == {"outside"}  # tenants' names and traffic
    if "production" not in told:
        mesh = {role for role, _ in workloads(documents)}
        assert admitted(documents, 4222, "nats") == mesh
        assert admitted(documents, 8222, "nats") == set()


def test_who_may_reach_out(told: tuple[str, ...], documents: Documents) -> None:
    own, production = told[0] in OWN, "production" in told
    alone = "two-engines" in told
    common = {("dns", 53), ("anywhere" if production else "nats", 4222)}
    worker = "engine" if own and not alone else "worker"
    cognition = {("perception", 50051), ("prediction", 50051), (worker, 50052)}
    https = {("anywhere", 443)} if told[0] in ("vllm", "sglang") else set()
    api = {("anywhere", 443), ("anywhere", 6443)}
    assert reached(documents, "gateway") == common | cognition | {("engine" if own else "engines", 8000)}
    if alone:
        assert reached(documents, "engine") == common | https | {("engine", 0)}
        assert reached(documents, "worker") == common | api | {("engine", 8000)}
    else:
        assert reached(documents, worker) == common | (https if own else api | {("engines", 8000)})
    assert reached(documents, "meta") == common | https
    for role in ("perception", "prediction", "qos", "statera"):
        assert reached(documents, role) == common


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
def test_a_policy_that_opens_the_engines_is_found(planted: dict[str, Any], found: set[str]) -> None:
    documents = rendered("vllm")
    spec = {"policyTypes": ["Ingress"], **planted}
    assert admitted([*documents, {"kind": "NetworkPolicy", "spec": spec}], 8000, "engine") == found
    assert admitted([d for d in documents if d["metadata"]["name"] != "mesh-workers"], 8000, "engine") == set()
    assert admitted([d for d in documents if d["kind"] != "NetworkPolicy"], 8000, "engine") == {"anyone"}


# --- secrets and certificates ---


def user_of(role: str) -> str:
    return {"engine": "worker", "console": "operator"}.get(role, role)


def test_each_service_has_its_own_secrets_and_no_other(told: tuple[str, ...], documents: Documents) -> None:
    production = "production" in told
    for role, pod in workloads(documents):
        if role == "nats" or pod["containers"][0]["name"] == "engine":  # which are no service of the mesh
            assert "mesh-" not in str([volume.get("secret") for volume in pod["volumes"]])
            continue
        user = user_of(role)
        settings = {v["name"]: v.get("value") for v in pod["containers"][0]["env"]}
        assert settings["HMAS_NATS_USER"] == user
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        sources = {source["secret"]["name"] for source in volumes["secrets"]["projected"]["sources"]}
        mesh = {"mesh-mesh"} if user in RECOGNISED else set()
        assert sources == {f"mesh-nats-{user}"} | mesh | ({"mesh-console"} if role == "console" else set())
        assert ("HMAS_MESH_SECRET_FILE" in settings) == bool(mesh)
        mounted = {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}
        wanted = {f"mesh-tls-{user}"} | ({"hmas-tenants", "mesh-tls-api"} if role == "gateway" else set())
        assert mounted - {"huggingface"} == (wanted if production else set())
        for container in pod["containers"]:
            for variable in container["env"]:
                assert "secretKeyRef" not in str(variable), role  # they are files


def test_two_releases_in_one_namespace_share_nothing() -> None:
    every = ("engines.model=m", "engines.pods.app=vllm", "console.enabled=true", "keda.enabled=true", *PICKER,
             "podMonitor.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true")  # fmt: skip
    pair = [rendered(*every, release=release) for release in ("mesh-one", "mesh-two")]
    names = [{(d["kind"], d["metadata"]["name"]) for d in documents} for documents in pair]
    assert not names[0] & names[1]
    text = template(*every, release="mesh-two").stdout
    for _, name in names[0]:
        assert not re.search(rf"\b{re.escape(name)}\b", text), name
    policies = of_kind(pair[0], "NetworkPolicy").values()
    assert all("mesh-one" in str(policy["spec"]["podSelector"]) for policy in policies)


def test_releases_of_one_name_in_two_namespaces_read_the_same_engines() -> None:
    roles = list(of_kind(rendered(*SERVICE, "engines.namespace=engines"), "Role"))
    assert roles == ["serving.mesh.engines"]  # which names the release's own namespace


def test_certificates_are_for_the_names_by_which_services_are_known() -> None:
    documents = rendered("vllm", "production", "tls.names={llm.example.com}")
    made = {name: d["spec"] for name, d in of_kind(documents, "Certificate").items()}
    issued = {name.removeprefix("mesh-"): spec for name, spec in made.items() if not spec.get("isCA")}
    assert issued.keys() == {user.name for user in USERS} | {"nats", "api"}
    for name, spec in issued.items():
        assert name in spec["dnsNames"] or name == "api"
        assert spec["secretName"] == f"mesh-tls-{name}"
        assert spec["usages"] == (["server auth"] if name == "api" else ["server auth", "client auth"])
    assert {"llm.example.com", "mesh-gateway.serving.svc"} <= set(issued["api"]["dnsNames"])
    assert {spec["issuerRef"]["name"] for spec in made.values()} == set(of_kind(documents, "Issuer"))
    theirs = rendered("vllm", "production", "tls.issuer=ours")
    assert not of_kind(theirs, "Issuer")
    assert {d["spec"]["issuerRef"]["name"] for d in of_kind(theirs, "Certificate").values()} == {"ours"}


# --- engines of the chart's own ---


@pytest.mark.parametrize("more", [(), ("picker.enabled=true",)], ids=["by name", "by address"])
@pytest.mark.parametrize("file", OWN)
def test_gateways_and_workers_agree_on_engines_and_keys(file: str, more: tuple[str, ...]) -> None:
    """The address by which a worker names its engine is one that gateways may use, and both have its key."""
    documents = rendered(file, "engines.apiKeySecret=key", *more)
    pods = dict(workloads(documents))
    settings = [environment(documents, name) for name in ("gateway", "worker")]
    pod = "10.0.0.7" if more else "mesh-engine-0"  # what the kubelet writes in the place of its name
    in_pod = settings[1]["HMAS_ENGINES"].replace("$(POD)", pod)
    (engine,) = (EngineSettings(**told) for told in json.loads(in_pod))
    allowed = AllowedEndpoints(parse_rules(settings[0]["HMAS_ENGINE_ENDPOINTS"]))
    assert allowed.key_of(engine.endpoint) is not None
    assert allowed.key_of("http://engine-0.engine.example:9000") is None
    service = of_kind(documents, "Service")["mesh-engine"]["spec"]
    assert service["publishNotReadyAddresses"], "engines of a dead worker would lose their names"
    (stateful,) = (d for d in of_kind(documents, "StatefulSet").values() if d["metadata"]["name"] == "mesh-engine")
    assert stateful["spec"]["serviceName"] == "mesh-engine"
    assert service["selector"].items() <= stateful["spec"]["template"]["metadata"]["labels"].items()
    for name, values in zip(("gateway", "worker"), settings, strict=True):
        folder = values["HMAS_ENGINE_API_KEY_FILE"].rpartition("/")[0]
        assert folder in {mount["mountPath"] for mount in containers(documents)[name]["volumeMounts"]}
    listens = next(c for c in pods["engine"]["initContainers"] if c["name"] == "engine")
    assert listens["restartPolicy"] == "Always"
    assert listens["args"][listens["args"].index("--host") + 1] == "0.0.0.0"
    assert "key" in str(next(v for v in listens["env"] if v["name"] == "VLLM_API_KEY"))


def test_vllm_and_its_worker_share_the_plug_ins_block() -> None:
    pod = dict(workloads(rendered("vllm", "engines.run.args={--enable-prefix-caching}")))["engine"]
    engine, (worker,) = pod["initContainers"][-1], pod["containers"]
    assert engine["args"][-3:] == ["--scheduler-cls", "hmas.plugins.vllm.HmasAsyncScheduler", "--enable-prefix-caching"]
    assert "--scheduling-policy" not in engine["args"]  # by priority the plug-in leaves the order alone
    assert engine["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert {"name": "HMAS_CONTROL_BLOCK_DIR", "value": "/control"} in worker["env"]
    for container in (engine, worker):
        (mount,) = (m for m in container["volumeMounts"] if m["name"] == "control")
        assert mount == {"name": "control", "mountPath": "/control"}
    assert "control" not in str(dict(workloads(rendered("sglang")))["engine"])
    kept = dict(workloads(rendered("vllm", "engines.run.modelsClaim=models")))["engine"]["volumes"]
    assert {"name": "models", "persistentVolumeClaim": {"claimName": "models"}} in kept


# --- the endpoint picker ---


@pytest.mark.parametrize("engines", [("inference-gateway",), ("emulated", *PICKER)], ids=["pods", "own"])
def test_a_gateway_of_the_gateway_api_is_told_of_engines_and_picker(engines: tuple[str, ...]) -> None:
    documents = rendered(*engines)
    (pool,), (route,) = of_kind(documents, "InferencePool").values(), of_kind(documents, "HTTPRoute").values()
    services = of_kind(documents, "Service")
    named = pool["spec"]["endpointPickerRef"]
    service = services[named["name"]]["spec"]
    (port,) = service["ports"]
    assert named["port"]["number"] == port["port"]
    gateway = containers(documents)["gateway"]
    assert [p["containerPort"] for p in gateway["ports"] if p["name"] == port["targetPort"]] == [9002]
    settings = environment(documents, "gateway")
    assert (settings["HMAS_PICKER_HOST"], settings["HMAS_PICKER_PORT"]) == ("0.0.0.0", "9002")
    assert service["selector"] == services["mesh-gateway"]["spec"]["selector"]
    (backend,) = route["spec"]["rules"][0]["backendRefs"]
    assert (backend["kind"], backend["name"]) == ("InferencePool", pool["metadata"]["name"])
    # The gateway and H-MAS's workers find the same engines.
    chosen = pool["spec"]["selector"]["matchLabels"]
    if engines == ("inference-gateway",):
        assert services["mesh-engines"]["spec"]["selector"] == chosen
        assert environment(documents, "worker")["HMAS_ENGINES"].endswith("/kubernetes.io/service-name=mesh-engines")
    else:
        labels = of_kind(documents, "StatefulSet")["mesh-engine"]["spec"]["template"]["metadata"]["labels"]
        assert chosen.items() <= labels.items()
        assert admitted(documents, 8000, "engine") == {"anyone", "gateway"}  # Envoy carries requests itself


def test_a_certificate_of_the_gateways_makes_api_and_picker_speak_tls() -> None:
    plain, secured = rendered("inference-gateway"), rendered("inference-gateway", "gateway.tlsSecret=ours")
    protocols = [
        of_kind(each, "Service")["mesh-picker"]["spec"]["ports"][0]["appProtocol"] for each in (plain, secured)
    ]
    assert protocols == ["kubernetes.io/h2c", "https"]
    settings = environment(secured, "gateway")
    folder = settings["HMAS_TLS_CERT_FILE"].removesuffix("/tls.crt")
    assert settings["HMAS_TLS_KEY_FILE"] == f"{folder}/tls.key"
    pod = dict(workloads(secured))["gateway"]
    (container,) = pod["containers"]
    assert {"name": "api-tls", "mountPath": folder, "readOnly": True} in container["volumeMounts"]
    assert "ours" in [v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v]
    assert container["readinessProbe"]["httpGet"]["port"] == "ops"  # the API's own port speaks no HTTP
    assert "HMAS_TLS_CERT_FILE" not in environment(plain, "gateway")
    assert "mesh-api" not in of_kind(rendered("vllm", "production", "gateway.tlsSecret=ours"), "Certificate")


def test_without_a_picker_there_is_none() -> None:
    documents = rendered("attach")
    assert not of_kind(documents, "InferencePool")
    assert "PICKER" not in str(documents)


# --- monitoring ---


def test_what_prometheus_and_grafana_get_is_what_compose_gives_them() -> None:
    documents = rendered("attach", "production")
    boards = of_kind(documents, "ConfigMap")["mesh-dashboards"]
    assert boards["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len(boards["data"]) == 5
    assert all(json.loads(text)["panels"] for text in boards["data"].values())
    (rule,) = of_kind(documents, "PrometheusRule").values()
    assert sum(len(group["rules"]) for group in rule["spec"]["groups"]) > 10
    ports = {p["name"] for c in containers(documents).values() for p in c["ports"]}
    (monitor,) = of_kind(documents, "PodMonitor").values()
    assert {each["port"] for each in monitor["spec"]["podMetricsEndpoints"]} <= ports
