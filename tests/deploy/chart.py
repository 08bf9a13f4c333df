"""The Helm chart as Helm renders it, and what its documents say."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "hmas"
VALUES = ROOT / "deploy" / "helm" / "values"
VERSIONS = ("1.35", "1.36", "1.37")
OPERATORS = yaml.safe_load(Path(__file__).with_name("operators.yaml").read_text())
SERVICE = ("engines.model=Qwen/Qwen3-8B", "engines.service=vllm")
Documents = list[dict[str, Any]]
# It would read Kubernetes' schemas again for each document, which takes longer than all else.
kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)


def helm() -> str:
    """`make deploy-check` puts one beside the interpreter where there is none."""
    beside = Path(sys.executable).parent / "helm"
    found = str(beside) if beside.exists() else shutil.which("helm")
    if found is None:
        pytest.skip("no helm: `make deploy-check` installs one, or put one on PATH")
    return found


@cache
def template(*values: str, release: str = "mesh") -> subprocess.CompletedProcess[str]:
    """`helm template` with values: NAME=VALUE, or a file of deploy/helm/values by its name."""
    flags = [a for v in values for a in (("--set", v) if "=" in v else ("-f", str(VALUES / f"{v}.yaml")))]
    command = [helm(), "template", release, str(CHART), "--namespace", "serving", *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def rendered(*values: str, release: str = "mesh") -> Documents:
    done = template(*values, release=release)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def faults(document: dict[str, Any], version: str) -> list[str]:
    """What is wrong with a document by the schema of its kind: Kubernetes' own, or of an operator that brings it."""
    schema = OPERATORS.get(f"{document['apiVersion']} {document['kind']}")
    if schema is None:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [str(error)]
        return []
    meta = {"apiVersion": {}, "kind": {}, "metadata": {"type": "object"}}
    whole = {"type": "object", "additionalProperties": False, "properties": {**meta, "spec": schema}}
    return [f"{e.json_path}: {e.message}" for e in Draft202012Validator(whole).iter_errors(document)]


def workloads(documents: Documents) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each workload's role and its pod."""
    for document in documents:
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield document["metadata"]["labels"]["app.kubernetes.io/name"], document["spec"]["template"]["spec"]


def containers(documents: Documents) -> dict[str, dict[str, Any]]:
    """Returns the service's container of each workload."""
    pods = [pod for _, pod in workloads(documents)]
    return {pod["containers"][0]["name"]: pod["containers"][0] for pod in pods}


def environment(documents: Documents, service: str) -> dict[str, Any]:
    return {each["name"]: each.get("value") for each in containers(documents)[service]["env"]}


def of_kind(documents: Documents, kind: str) -> dict[str, dict[str, Any]]:
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}
