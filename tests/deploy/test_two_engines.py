"""Engines with roles in the chart: pods without a worker, and one worker that finds all of them by their labels."""

from typing import Any

import pytest

from hmas.engine.__main__ import parser
from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.worker.discovery.endpoint_slices import EndpointSlices
from hmas.worker.discovery.source import KubernetesSource, source_of
from hmas.worker.settings import WorkerSettings
from tests.deploy.chart import (
    SERVICE,
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

pytestmark = pytest.mark.deploy
PAIRS = ("emulated", "two-engines")
PODS = ("engines.model=m", "engines.pods.app=vllm", "engines.split=always")
NODES = ("vllm", "engines.types[0].name=a", "engines.types[0].role=prefill", "engines.types[0].gpus=2")
ROLES = {"prefill": "prefill", "decode": "decode", "prefill-decode": "", "both": ""}


def found(documents: Documents, labels: dict[str, str]) -> tuple[tuple[str, str], ...]:
    """Address and role of a pod with these labels, as the release's worker finds it: by the slices that Kubernetes
    makes of the Services which select the pod, with the Services' labels."""
    source = source_of(environment(documents, "worker")["HMAS_ENGINES"])
    assert isinstance(source, KubernetesSource)
    name, _, chosen = source.selector.partition(" in ")
    assert name == "kubernetes.io/service-name"
    slices = EndpointSlices(source.port)
    items = [
        {
            "metadata": {"name": f"{service}-x", "labels": each["metadata"]["labels"]},
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.0.0.7"], "conditions": {"ready": True}}],
            "ports": [{"name": "http", "port": 8000}],
        }
        for service, each in of_kind(documents, "Service").items()
        if service in chosen.strip("()").split(",")
        and each["spec"]["selector"].items() <= labels.items()
        and each["metadata"]["namespace"] == source.namespace
    ]
    slices.replace(items, "1")
    return tuple((each.url, each.role) for each in slices.endpoints())


def engines(documents: Documents) -> dict[str, dict[str, Any]]:
    return {name: each["spec"] for name, each in of_kind(documents, "StatefulSet").items() if "engine" in name}


@pytest.mark.parametrize("values", [PAIRS, (*PAIRS, "picker.enabled=true", "engines.apiKeySecret=key"), PODS])
def test_every_document_of_engines_with_roles_keeps_its_schema(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    for document in documents:
        for version in VERSIONS:
            assert faults(document, version) == [], (document["kind"], document["metadata"]["name"])


def test_one_worker_finds_the_engines_of_each_role_and_gateways_may_use_them() -> None:
    documents = rendered(*PAIRS)
    sets = engines(documents)
    assert {name: each["replicas"] for name, each in sets.items()} == {
        "mesh-engine-prefill": 2,
        "mesh-engine-decode": 1,
    }
    for name, each in sets.items():
        labels = each["template"]["metadata"]["labels"]
        role = name.removeprefix("mesh-engine-")
        assert found(documents, labels) == (("http://10.0.0.7:8000", role),)
        assert each["serviceName"] in of_kind(documents, "Service")
        others = [other for other in sets.values() if each["selector"]["matchLabels"].items()
                  <= other["template"]["metadata"]["labels"].items()]  # fmt: skip
        assert others == [each]
    rules = AllowedEndpoints(parse_rules(environment(documents, "gateway")["HMAS_ENGINE_ENDPOINTS"]))
    assert rules.key_of("http://10.0.0.7:8000") is not None
    assert of_kind(documents, "Deployment")["mesh-worker"]["spec"]["replicas"] == 1
    assert "mesh-engine" not in of_kind(documents, "Service")
    assert list(of_kind(documents, "Role")) == ["serving.mesh.engines"]  # to read EndpointSlices, and no pods


@pytest.mark.parametrize(
    ("values", "split"), [(PAIRS, "auto"), ((*PAIRS, "engines.split=beyond:512"), "beyond:512"), (PODS, "always")]
)
def test_the_worker_is_told_when_two_engines_serve_a_request(
    monkeypatch: pytest.MonkeyPatch, values: tuple[str, ...], split: str
) -> None:
    told = environment(rendered(*values), "worker")
    assert (told["HMAS_SPLIT"], told["HMAS_KV_TRANSFER"]) == (split, "nixl-pull")
    for name in ("POOL", "ENGINES", "SPLIT", "KV_TRANSFER"):
        monkeypatch.setenv(f"HMAS_{name}", told[f"HMAS_{name}"])
    settings = WorkerSettings()
    assert settings.worker_config("w", "i", "a:1").split.rule == split.partition(":")[0]
    plain = environment(rendered(*SERVICE), "worker")
    assert not {"HMAS_SPLIT", "HMAS_KV_TRANSFER"} & plain.keys()


def test_an_engine_with_a_role_hands_kv_over_and_serves_on_while_it_is_drained() -> None:
    documents = rendered(*PAIRS, "engines.run.args={--seed=7}")
    (engine,) = engines(documents)["mesh-engine-prefill"]["template"]["spec"]["containers"]
    args = parser().parse_args(engine["args"])
    assert args.kv_transfer_config.lease_s == 10.0
    assert (args.seed, args.port) == (7, 8000)
    address = next(each for each in engine["env"] if each["name"] == "VLLM_NIXL_SIDE_CHANNEL_HOST")
    assert address["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP"
    pod = dict(workloads(documents))["engine"]
    drain_s = int(engine["lifecycle"]["preStop"]["exec"]["command"][1])
    leave_s = float(environment(documents, "worker")["HMAS_LEAVE_GRACE_S"])
    assert leave_s <= drain_s < pod["terminationGracePeriodSeconds"]
    assert engine["readinessProbe"] == engine["livenessProbe"]
    long = rendered(*PAIRS, "engines.leaveGraceSeconds=600")
    (engine,) = engines(long)["mesh-engine-decode"]["template"]["spec"]["containers"]
    assert engine["lifecycle"]["preStop"]["exec"]["command"] == ["sleep", "120"]  # before the pod's own end


def test_vllm_with_a_role_has_no_block_to_share_and_the_connector_at_hand() -> None:
    documents = rendered("vllm", "two-engines", "engines.types[0].gpus=2")
    pod = engines(documents)["mesh-engine-prefill"]["template"]["spec"]
    (engine,) = pod["containers"]
    assert "--scheduler-cls" not in engine["args"]
    assert engine["args"][-2] == "--kv-transfer-config"
    told = {each["name"]: each.get("value") for each in engine["env"]}
    assert (told["PYTHONPATH"], "HMAS_CONTROL_BLOCK" in told) == ("/plugin", False)
    assert "control" not in str(pod["volumes"])
    assert [each["name"] for each in pod["initContainers"]] == ["plugin"]
    assert "HMAS_CONTROL_BLOCK_DIR" not in environment(documents, "worker")
    mounted = {mount["name"] for each in (*pod["initContainers"], engine) for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("role", ROLES)
def test_pods_of_somebody_else_are_found_by_their_label(role: str) -> None:
    documents = rendered(*PODS, "engines.namespace=llm")
    labels = {"app": "vllm", "llm-d.ai/role": role}
    assert found(documents, labels) == (("http://10.0.0.7:8000", ROLES[role]),)
    assert found(documents, {**labels, "app": "other"}) == ()
    assert found(documents, {"app": "vllm"}) == ()
    assert "mesh-engines" not in of_kind(documents, "Service")


def test_a_list_of_engines_says_itself_how_each_hands_kv_over() -> None:
    documents = rendered("engines.model=m", "engines.urls[0].url=http://a:1", "engines.split=always")
    told = environment(documents, "worker")
    assert told["HMAS_SPLIT"] == "always"
    assert "HMAS_KV_TRANSFER" not in told
    assert of_kind(documents, "Deployment")["mesh-worker"]["spec"]["replicas"] == 1


def test_a_type_with_a_role_may_be_scaled_on_its_own() -> None:
    kept = engines(rendered(*PAIRS, "keda.enabled=true", "keda.engines.name=mesh-engine-decode",
                            "keda.engines.kind=StatefulSet"))  # fmt: skip
    assert {name: "replicas" in each for name, each in kept.items()} == {
        "mesh-engine-prefill": True, "mesh-engine-decode": False,
    }  # fmt: skip


def test_envoy_may_reach_engines_with_roles() -> None:
    documents = rendered(*PAIRS, "picker.enabled=true", "picker.inferencePool.create=true")
    (pool,) = of_kind(documents, "InferencePool").values()
    chosen = pool["spec"]["selector"]["matchLabels"].items()
    assert all(chosen <= each["template"]["metadata"]["labels"].items() for each in engines(documents).values())
    ingress = of_kind(documents, "NetworkPolicy")["mesh-engines"]["spec"]["ingress"]
    assert {"ports": [{"port": 8000}]} in ingress
    assert set(containers(documents)) >= {"engine", "worker"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("emulated", "engines.types[0].name=a", "engines.types[0].role=prefill"), "prefill and one with decode"),
        ((*PAIRS, "engines.types[2].name=c"), "either all types have a role"),
        ((*PAIRS, "engines.types[2].name=c", "engines.types[2].role=encode"), "role"),
        ((*NODES, "engines.types[0].nodes=2"), "either all types have a role"),
        ((*PAIRS, "engines.types[0].hardware=h100x2"), "a hardware of their own"),
        (("sglang", "two-engines"), "of vllm or emulated"),
        (("emulated", "engines.split=always"), "needs one worker over both engines"),
        ((*SERVICE, "engines.split=sometimes"), "split"),
        ((*PAIRS, "worker.env.HMAS_SPLIT=auto"), "engines.split sets HMAS_SPLIT"),
        ((*PAIRS, "worker.settings.split=auto"), "engines.split sets HMAS_SPLIT"),
        ((*PAIRS, "plan.act=scale", "plan.catalogue=c", "plan.budget=8xh100", "keda.enabled=true"), "moves no roles"),
    ],
)
def test_roles_that_cannot_work_are_refused(values: tuple[str, ...], message: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert message in done.stderr
