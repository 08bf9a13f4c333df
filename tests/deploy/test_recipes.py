"""What docs/recipes.md tells an operator to type: rendered by Helm, and read by our own discovery. Labels
and ports are those in the manifests of the vLLM production stack's chart and of llm-d's guide `optimized-baseline`."""

import json
import re
import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.worker.discovery.endpoint_slices import EndpointSlices
from hmas.worker.discovery.source import KubernetesSource, source_of
from tests.deploy.chart import ROOT, VERSIONS, environment, faults, of_kind, rendered
from tests.recipes.page import section

pytestmark = pytest.mark.deploy
STACK, LLM_D = "In front of the vLLM production stack's engines", "In the place of llm-d's picker, or beside it"
# Of a release `vllm` with an entry `qwen3` in modelSpec: the Service's labels, which its EndpointSlices get, and ports.
STACK_LABELS = {
    "app.kubernetes.io/name": "qwen3", "app.kubernetes.io/instance": "vllm",
    "app.kubernetes.io/component": "serving-engine", "app.kubernetes.io/part-of": "vllm-stack",
    "app.kubernetes.io/managed-by": "helm", "environment": "test", "release": "test",
}  # fmt: skip
STACK_PORTS = [
    {"name": "zmq-port", "port": 55555}, {"name": "ucx-port", "port": 9999}, {"name": "service-port", "port": 8000}
]  # fmt: skip
LLM_D_POD = {
    "llm-d.ai/guide": "optimized-baseline", "llm-d.ai/role": "decode", "llm-d.ai/model": "Qwen3-32B",
    "llm-d.ai/accelerator-variant": "gpu", "llm-d.ai/accelerator-vendor": "nvidia",
}  # fmt: skip


def typed(heading: str, program: str) -> list[list[str]]:
    """The commands of a program under a heading of the page, as a shell would divide them."""
    blocks = re.findall(r"^```\n(.*?)^```", section(heading), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line))[0] == program]


def sets(command: list[str]) -> list[str]:
    return [value for flag, value in pairwise(command) if flag == "--set"]


def selects(selector: str, labels: dict[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in (each.split("=") for each in selector.split(",")))


def found_with(values: list[str], labels: dict[str, str], ports: list[dict[str, Any]]) -> tuple[str, ...]:
    """The engines that the chart's workers find where one EndpointSlice has these labels and ports, and that its
    gateways may use."""
    documents = rendered(*values)
    for document in documents:
        for version in VERSIONS:
            assert faults(document, version) == []
    source = source_of(environment(documents, "worker")["HMAS_ENGINES"])
    assert isinstance(source, KubernetesSource)
    if not selects(source.selector, labels):
        return ()
    ready = [{"addresses": ["10.0.0.7"], "conditions": {"ready": True}}]
    slices = EndpointSlices(source.port)
    item = {"metadata": {"name": "slice"}, "addressType": "IPv4", "ports": ports, "endpoints": ready}
    slices.replace([item], "1")
    allowed = AllowedEndpoints(parse_rules(environment(documents, "gateway")["HMAS_ENGINE_ENDPOINTS"]))
    return tuple(each.url for each in slices.endpoints() if allowed.key_of(each.url) is not None)


def test_the_production_stacks_engines_are_found_by_their_service() -> None:
    (command,) = typed(STACK, "helm")
    labels = {**STACK_LABELS, "kubernetes.io/service-name": "vllm-qwen3-engine-service"}
    assert found_with(sets(command), labels, STACK_PORTS) == ("http://10.0.0.7:8000",)
    assert found_with(sets(command), STACK_LABELS, STACK_PORTS) == ()


def test_the_production_stacks_engines_are_found_by_a_label_in_common() -> None:
    (value,) = re.findall(r"`--set (engines\.selector=\S+)`", section(STACK))
    (value,) = shlex.split(value)
    assert found_with(["engines.model=m", value], STACK_LABELS, STACK_PORTS) == ("http://10.0.0.7:8000",)
    router = {**STACK_LABELS, "app.kubernetes.io/component": "router"}
    assert found_with(["engines.model=m", value], router, STACK_PORTS) == ()


def test_llm_ds_engines_are_found_by_their_pods_labels() -> None:
    (command,) = typed(LLM_D, "helm")
    documents = rendered(*sets(command))
    service = of_kind(documents, "Service")["mesh-engines"]
    assert service["spec"]["selector"].items() <= LLM_D_POD.items()
    assert not service["spec"]["selector"].items() <= {**LLM_D_POD, "llm-d.ai/role": "prefill"}.items()
    labels = {"kubernetes.io/service-name": service["metadata"]["name"]}
    ports = [{"name": each["name"], "port": each["port"]} for each in service["spec"]["ports"]]
    assert found_with(sets(command), labels, ports) == ("http://10.0.0.7:8000",)


def test_the_picker_that_llm_ds_pool_is_to_name_is_there() -> None:
    (patch,) = typed(LLM_D, "kubectl")
    (picker,) = json.loads(patch[patch.index("-p") + 1])["spec"].values()
    (command,) = typed(LLM_D, "helm")
    (port,) = of_kind(rendered(*sets(command), release="hmas"), "Service")[picker["name"]]["spec"]["ports"]
    assert port["port"] == picker["port"]["number"]


def test_every_installation_of_the_pages_renders() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    found = 0
    for page in pages:
        for line in page.read_text().replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True) if line.startswith("helm install hmas deploy/helm/hmas") else []
            files = [Path(file).stem for flag, file in pairwise(words) if flag == "-f"]
            if words:
                documents = rendered(*files, *sets(words), release="hmas")
                assert [fault for document in documents for fault in faults(document, VERSIONS[-1])] == [], line
                found += 1
    assert found >= 7
