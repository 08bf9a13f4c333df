"""Engines of several instance types: a StatefulSet each, and as many of each as the meta controller orders."""

from math import ceil
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from hmas.meta.metrics import MetaMetrics
from hmas.runtime.catalogue_file import parse_catalogue, render_catalogue
from hmas.runtime.setting_names import SETTINGS
from tests.builders.instance_types import CATALOGUE
from tests.deploy.chart import VERSIONS, Documents, containers, environment, faults, of_kind, rendered, template
from tests.meta.test_plan_inputs import decision

pytestmark = pytest.mark.deploy
TYPES = (
    "vllm", "engines.types[0].name=tp4", "engines.types[0].gpus=4", "engines.types[0].hardware=h100x4",
    "engines.types[0].replicas=0", "engines.types[0].args={--tensor-parallel-size=4}",
    "engines.types[1].name=tp2", "engines.types[1].gpus=2",
)  # fmt: skip
PLAN = ("plan.catalogue=types", "plan.budget=8xh100\\,2xl40s", "keda.enabled=true")
SCALE = (*TYPES, *PLAN, "plan.act=scale")


def sets(documents: Documents) -> dict[str, dict[str, Any]]:
    return {name: each for name, each in of_kind(documents, "StatefulSet").items() if "engine" in name}


@pytest.mark.parametrize("values", [TYPES, SCALE, (*TYPES, *PLAN)], ids=["types", "scale", "advise"])
def test_every_document_with_instance_types_keeps_its_schema(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    for document in documents:
        for version in VERSIONS:
            assert faults(document, version) == [], (document["kind"], document["metadata"]["name"])
    names = [(d["kind"], d["metadata"]["name"]) for d in documents]
    assert len(set(names)) == len(names)


def test_each_instance_type_has_a_stateful_set_with_its_cards_and_arguments() -> None:
    found = sets(rendered(*TYPES))
    assert {name: each["spec"]["replicas"] for name, each in found.items()} == {
        "mesh-engine-tp4": 0,
        "mesh-engine-tp2": 2,
    }
    told = {}
    for name, each in found.items():
        pod = each["spec"]["template"]["spec"]
        engine = pod["initContainers"][-1]
        worker = {one["name"]: one.get("value") for one in pod["containers"][0]["env"]}
        told[name] = engine["resources"]["limits"]["nvidia.com/gpu"], engine["args"][-1], worker.get("HMAS_HARDWARE")
        assert each["spec"]["serviceName"] == "mesh-engine"
    assert told["mesh-engine-tp4"] == ("4", "--tensor-parallel-size=4", "h100x4")
    assert told["mesh-engine-tp2"][0] == "2"
    assert "--tensor-parallel-size=4" not in told["mesh-engine-tp2"][1]


def test_no_set_takes_another_types_pods_and_the_service_names_them_all() -> None:
    documents = rendered(*TYPES)
    pods = {name: each["spec"]["template"]["metadata"]["labels"] for name, each in sets(documents).items()}
    for name, each in sets(documents).items():
        selector = each["spec"]["selector"]["matchLabels"].items()
        assert [other for other, labels in pods.items() if selector <= labels.items()] == [name]
    service = of_kind(documents, "Service")["mesh-engine"]["spec"]["selector"].items()
    assert all(service <= labels.items() for labels in pods.values())


def followed(scaled: dict[str, Any], value: float) -> int:
    """How many replicas KEDA and the HPA make of the query's value: the HPA divides the sum by the target, whatever
    runs; KEDA starts the first one and takes the last one away."""
    (trigger,) = scaled["triggers"]
    assert trigger["metricType"] == "AverageValue"
    number = ceil(value / float(trigger["metadata"]["threshold"]))
    low, high = int(scaled["minReplicaCount"]), int(scaled["maxReplicaCount"])
    return min(max(number, low), high)


NODES = ("vllm", "engines.types[0].name=tp16", "engines.types[0].gpus=16", "engines.types[0].nodes=2",
         "engines.types[0].replicas=1", "networkPolicy.httpsEgress={engine}")  # fmt: skip


def test_an_engine_over_several_nodes_is_a_group_of_pods() -> None:
    documents = rendered(*NODES)
    for document in documents:
        assert [faults(document, version) for version in VERSIONS] == [[]] * len(VERSIONS)
    assert sets(documents) == {}
    (group,) = of_kind(documents, "LeaderWorkerSet").values()
    assert (group["metadata"]["name"], group["spec"]["replicas"]) == ("mesh-engine-tp16", 1)
    template = group["spec"]["leaderWorkerTemplate"]
    assert template["size"] == 2
    for each in (template["leaderTemplate"], template["workerTemplate"]):
        metadata = {"name": "mesh-engine-tp16-0", **each["metadata"]}
        assert (
            faults({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": each["spec"]}, VERSIONS[-1]) == []
        )
    leader, follower = template["leaderTemplate"]["spec"], template["workerTemplate"]["spec"]
    (first,), (further,) = [e for e in leader["initContainers"] if e["name"] == "engine"], follower["containers"]
    joined = ["--nnodes", "2", "--master-addr", "$(LWS_LEADER_ADDRESS)", "--node-rank", "$(LWS_WORKER_INDEX)"]
    assert (first["args"][-6:], further["args"]) == (joined, [*first["args"], "--headless"])
    assert first["resources"]["limits"]["nvidia.com/gpu"] == further["resources"]["limits"]["nvidia.com/gpu"] == "8"
    assert not {"livenessProbe", "startupProbe", "restartPolicy"} & further.keys()  # it has no API
    assert {mount["name"] for mount in further["volumeMounts"]} <= {volume["name"] for volume in follower["volumes"]}


def test_the_nodes_of_an_engine_reach_one_another_and_gateways_the_first() -> None:
    documents = rendered(*NODES)
    (group,) = of_kind(documents, "LeaderWorkerSet").values()
    leader = group["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"]["containers"][0]
    source = next(each["value"] for each in leader["env"] if each["name"] == "HMAS_ENGINES")
    assert "http://$(POD).mesh-engine-tp16:8000" in source
    assert environment(documents, "gateway")["HMAS_ENGINE_ENDPOINTS"].split(",") == [
        "http://*.mesh-engine:8000", "http://*.mesh-engine-tp16:8000",
    ]  # fmt: skip
    policies = of_kind(documents, "NetworkPolicy")
    spec = policies["mesh-nodes"]["spec"]
    assert spec["ingress"] == [{"from": [{"podSelector": spec["podSelector"]}]}]
    assert spec["egress"] == [{"to": [{"podSelector": spec["podSelector"]}]}]
    (roles,) = spec["podSelector"]["matchExpressions"]
    assert roles["values"] == ["engine", "engine-node"]
    (https,) = policies["mesh-https-egress"]["spec"]["podSelector"]["matchExpressions"]
    assert https["values"] == ["engine", "engine-node"]
    assert "mesh-nodes" not in of_kind(rendered(*TYPES), "NetworkPolicy")


def test_an_engine_over_several_nodes_is_scaled_as_a_group() -> None:
    scaled = of_kind(rendered(*NODES, *PLAN, "plan.act=scale"), "ScaledObject")["mesh-engine-tp16"]["spec"]
    assert scaled["scaleTargetRef"] == {
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "name": "mesh-engine-tp16",
    }  # fmt: skip
    assert [followed(scaled, value) for value in range(4)] == list(range(4))


def test_replicas_follow_the_metric_of_their_type_one_to_one() -> None:
    documents = rendered(*SCALE)
    scaled = of_kind(documents, "ScaledObject")
    registry = CollectorRegistry()
    MetaMetrics(registry).show_plan(decision(ordered=()))
    labels = {metric.name for metric in registry.collect()}
    for name in ("tp4", "tp2"):
        spec = scaled[f"mesh-engine-{name}"]["spec"]
        assert spec["scaleTargetRef"] == {"kind": "StatefulSet", "name": f"mesh-engine-{name}"}
        assert "replicas" not in sets(documents)[f"mesh-engine-{name}"]["spec"]
        assert [followed(spec, value) for value in range(20)] == list(range(20))
        (trigger,) = spec["triggers"]
        assert trigger["metadata"]["query"] == f'max(hmas_plan_replicas{{namespace="serving",type="{name}"}})'
        assert "hmas_plan_replicas" in labels
        assert trigger["metadata"]["ignoreNullValues"] == "false"  # no value is an error, and not 0
        assert spec["fallback"]["behavior"] == "currentReplicas"
        for way in spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"].values():
            assert (way["stabilizationWindowSeconds"], way["tolerance"]) == (0, "0")
    assert len(scaled) == 3  # these, and the gateways


def test_without_power_to_scale_nothing_scales_the_engines() -> None:
    documents = rendered(*TYPES, *PLAN)
    assert set(of_kind(documents, "ScaledObject")) == {"mesh-gateway"}
    assert all("replicas" in each["spec"] for each in sets(documents).values())


def test_the_meta_controller_gets_catalogue_budget_and_power() -> None:
    documents = rendered(*SCALE)
    told = environment(documents, "meta")
    assert {name: told[name] for name in told if name.startswith(("HMAS_PLAN", "HMAS_CATALOGUE"))} == {
        "HMAS_CATALOGUE": "/etc/hmas/catalogue/catalogue.yaml", "HMAS_PLAN": "scale",
        "HMAS_PLAN_BUDGET": "8xh100,2xl40s", "HMAS_PLAN_FILE": "/etc/hmas/catalogue/plan.yaml",
        "HMAS_PLAN_SEARCH_S": "600",
    }  # fmt: skip
    assert {name for name in told if name.startswith("HMAS_")} <= SETTINGS
    mounts = {each["name"]: each["mountPath"] for each in containers(documents)["meta"]["volumeMounts"]}
    assert mounts["catalogue"] == "/etc/hmas/catalogue"
    assert "HMAS_PLAN" not in environment(documents, "statera")
    assert "HMAS_PLAN" not in environment(rendered(*TYPES), "meta")


def test_names_of_a_catalogue_are_names_of_the_chart() -> None:
    names = [each.name for each in parse_catalogue(render_catalogue(CATALOGUE)).types]
    values = [f"engines.types[{i}].name={name}" for i, name in enumerate(names)]
    assert set(sets(rendered("vllm", *values))) == {f"mesh-engine-{name}" for name in names}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (("attach", "engines.types[0].name=tp4"), "types are of the chart's own engines"),
        (("vllm", "engines.types[0].name=a", "engines.types[1].name=a"), "two types have one name"),
        (("vllm", f"engines.types[0].name={'a' * 60}"), "is too long beside that of the release"),
        (("sglang", *NODES[1:4]), "needs engines.run.kind=vllm and as many gpus on each"),
        (("vllm", *NODES[1:3], "engines.types[0].nodes=3"), "needs engines.run.kind=vllm and as many gpus on each"),
        (("vllm", *PLAN, "plan.act=scale"), "act=scale needs engines.types, plan.catalogue and keda.enabled"),
        ((*TYPES, "plan.act=scale", "keda.enabled=true"), "act=scale needs"),
        ((*TYPES, *PLAN[:2], "plan.act=scale"), "act=scale needs"),
        ((*SCALE, "keda.engines.name=mesh-engine-tp4"), "would both scale the engines"),
        ((*TYPES, "plan.catalogue=types"), "a catalogue needs plan.budget"),
        ((*TYPES, "plan.act=perhaps"), "plan/act"),
        ((*TYPES, "plan.budget=eight"), "plan/budget"),
    ],
)  # fmt: skip
def test_types_and_plans_that_cannot_work_are_refused(values: tuple[str, ...], message: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert message in done.stderr
