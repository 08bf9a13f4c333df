"""The Helm chart, rendered by Helm: every document keeps its schema, values are checked, and what is set arrives."""

import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from hmas.gateway.engines.allowed import AllowedEndpoints, parse_rules
from hmas.mesh.nats_server import find_nats_server
from hmas.runtime.setting_names import SETTINGS
from hmas.wire.permissions import USERS
from hmas.worker.discovery.file import parse_engines
from hmas.worker.discovery.source import DnsSource, FileSource, KubernetesSource, source_of
from tests.deploy.chart import CHART, SERVICE, VERSIONS, containers, environment, faults, helm, rendered, template

pytestmark = pytest.mark.deploy
URLS = ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
EVERYTHING = (
    *SERVICE, "engines.namespace=engines", "engines.apiKeySecret=key", "gateway.tenantsSecret=tenants", "mode=observe",
    "keda.enabled=true", "keda.engines.name=vllm", "podMonitor.enabled=true", "engines.aliases={a,b}",
    "engines.hardware=H100x2", "engines.maxNumSeqs=64", "nats.storage.className=fast", "worker.env.HMAS_PATIENCE_S=5",
    "picker.enabled=true", "console.enabled=true", "prometheusRule.enabled=true", "dashboards.enabled=true",
)  # fmt: skip
PLAIN = (*SERVICE, "networkPolicy.enabled=false", "nats.create=false", "secrets.create=false",
         "nats.url=nats://nats:4222", "worker.replicas=1")  # fmt: skip


@pytest.mark.parametrize("values", [SERVICE, EVERYTHING, PLAIN], ids=["service", "everything", "plain"])
def test_every_document_of_the_chart_keeps_its_schema(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    for document in documents:
        for version in VERSIONS:
            assert faults(document, version) == [], (document["kind"], document["metadata"]["name"])
    names = [(d["kind"], d["metadata"]["name"], d["metadata"].get("namespace")) for d in documents]
    assert len(set(names)) == len(names)
    services = {"gateway", "worker", "perception", "prediction", "qos", "meta", "statera"}
    more = {SERVICE: {"nats"}, EVERYTHING: {"nats", "console"}, PLAIN: set[str]()}[values]
    assert containers(documents).keys() == services | more


def test_what_keda_scales_has_no_number_of_replicas() -> None:
    kept = {d["metadata"]["name"]: "replicas" in d["spec"] for d in rendered(*EVERYTHING) if d["kind"] == "Deployment"}
    assert [name for name, told in kept.items() if not told] == ["mesh-gateway"]
    own = rendered("emulated", "keda.enabled=true", "keda.engines.name=mesh-engine", "keda.engines.kind=StatefulSet")
    assert [d["metadata"]["name"] for d in own if d["kind"] == "StatefulSet" and "replicas" not in d["spec"]] == [
        "mesh-engine"
    ]


@pytest.mark.parametrize("values", [EVERYTHING, PLAIN], ids=["everything", "plain"])
def test_settings_and_secrets_of_the_chart_exist(values: tuple[str, ...]) -> None:
    documents = rendered(*values)
    names = {name for service in containers(documents) for name in environment(documents, service)}
    names |= set(next(d["data"] for d in documents if (d["kind"], d["metadata"]["name"]) == ("ConfigMap", "mesh-mesh")))
    assert {name for name in names if name.startswith("HMAS_")} - SETTINGS == set()
    made = {d["metadata"]["name"]: d["data"].keys() for d in documents if d["kind"] == "Secret"}
    if values is EVERYTHING:
        wanted = {f"mesh-nats-{user.name}": {"nats_password"} for user in USERS} | {
            "mesh-mesh": {"mesh_secret"}, "mesh-console": {"console_token", "console_admin_token"},
        }  # fmt: skip
        assert {name: set(keys) for name, keys in made.items()} == wanted
    else:
        assert not made


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("engines.service=vllm", KubernetesSource("kubernetes.io/service-name=vllm", "serving", 8000)),
        ("engines.selector=app=vllm", KubernetesSource("app=vllm", "serving", 8000)),
        ("engines.pods.app=vllm", KubernetesSource("kubernetes.io/service-name=mesh-engines", "serving", 8000)),
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
        ((*SERVICE, "engines.run.kind=vllm"), "engines"),
        ((*SERVICE, "engines.pods.app=vllm"), "engines"),
        (("engines.model=m", "engines.run.kind=tgi"), "kind"),
        ((*SERVICE, "picker.enabled=true", "picker.inferencePool.create=true"), "engines.pods"),
        (("engines.model=m", "engines.pods.app=a", "picker.inferencePool.create=true"), "picker.enabled"),
        (
            (
                "engines.model=m",
                "engines.pods.app=a",
                "engines.namespace=b",
                "picker.enabled=true",
                "picker.inferencePool.create=true",
            ),
            "namespace",
        ),
        ((*SERVICE, "picker.enabled=true", "picker.httpRoute.gateway=g"), "inferencePool"),
        ((*SERVICE, "tls.enabled=true"), "NATS"),
        ((*SERVICE, "networkPolicy.httpsEgress={mta}"), "httpsEgress"),
        ((*SERVICE, "mode=off"), "mode"),
        ((*SERVICE, "worker.env.FOO=1"), "FOO"),
        ((*SERVICE, "worker.settings.HMAS_MODE=observe"), "HMAS_MODE"),
        ((*SERVICE, "gatway.replicas=1"), "gatway"),
        ((*SERVICE, "gateway.replicas=0"), "replicas"),
    ],
)
def test_values_that_cannot_work_are_refused(values: tuple[str, ...], message: str) -> None:
    done = template(*values)
    assert done.returncode != 0
    assert message in done.stderr


def test_a_section_of_an_hmas_yaml_is_a_services_settings() -> None:
    given = (
        "gateway.settings.max_requests=20000", "gateway.settings.cors_origins={https://a,https://b}",
        "gateway.settings.fail_open=false", "gateway.settings.journal=7", "gateway.env.HMAS_JOURNAL=8",
    )  # fmt: skip
    variables = environment(rendered(*SERVICE, *given), "gateway")
    named = ("HMAS_MAX_REQUESTS", "HMAS_CORS_ORIGINS", "HMAS_FAIL_OPEN", "HMAS_JOURNAL")
    assert [variables[name] for name in named] == ["20000", "https://a,https://b", "false", "8"]
    assert "HMAS_JOURNAL" not in environment(rendered(*SERVICE, *given), "worker")


def test_a_large_number_of_a_values_file_stays_a_whole_one(tmp_path: Path) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("gateway: {settings: {max_held_bytes: 1073741824}, env: {HMAS_MAX_BODY_BYTES: 2097152}}")
    command = [helm(), "template", "mesh", str(CHART), "--set", ",".join(SERVICE), "-f", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    variables = environment([each for each in yaml.safe_load_all(done.stdout) if each], "gateway")
    assert (variables["HMAS_MAX_HELD_BYTES"], variables["HMAS_MAX_BODY_BYTES"]) == ("1073741824", "2097152")


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


@pytest.mark.parametrize("values", [("attach",), ("vllm", "production"), ("inference-gateway",)], ids="+".join)
def test_rolling_out_and_back_changes_the_mode_and_nothing_else(values: tuple[str, ...]) -> None:
    """Pods restart, because what they read has another checksum; no name, selector or secret changes."""

    def told(mode: str) -> str:
        text = template(*values, f"mode={mode}", "secrets.create=false").stdout
        return re.sub(r"checksum/config: \w+", "", text)

    observing, scheduling = told("observe"), told("schedule")
    assert observing.count("HMAS_MODE: observe") == 1
    assert observing.replace("HMAS_MODE: observe", "HMAS_MODE: schedule") == scheduling
    sums = [
        re.findall(r"checksum/config: (\w+)", template(*values, f"mode={m}").stdout) for m in ("observe", "schedule")
    ]
    assert not set(sums[0]) & set(sums[1])
