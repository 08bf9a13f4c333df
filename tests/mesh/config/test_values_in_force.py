"""A flag outranks a variable, a variable the file, and the file the default; `hmas config show` says which it was."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from hmas.mesh.config.cli import app, context_of_up
from hmas.mesh.config.flags import flags_of
from hmas.mesh.config.mesh_file import read_mesh_file
from hmas.mesh.config.schema import config_schema
from hmas.mesh.config.sections import COMMON, NATS_LOGIN, PLANNED, SECTIONS, SERVICES, flag_that_sets
from hmas.mesh.config.values_in_force import defaults_of_flags, shown, values_in_force, variables
from hmas.mesh.options import MeshOptions
from hmas.mesh.processes import make_plan
from hmas.mesh.up_cli import FILE_IN_CONTEXT, up

FILE = """\
up:
  port: 9000
  console_port: 9001
  llm_url: http://me:hunter2@llm:8000/v1
every_service:
  otlp_endpoint: http://user:hunter2@collector:4318
  trace_ratio: 0.5
gateway:
  max_requests: 5
  journal: 7
worker:
  trace_ratio: 0.25
meta:
  selector: rules
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("HMAS_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "hmas.yaml"
    path.write_text(FILE)
    return path


def shown_by(path: Path, *flags: str) -> dict[str, tuple[str, str]]:
    """What `hmas config show` has: value and source of each name."""
    context = context_of_up(["--config", str(path), *flags])
    found = values_in_force(context.meta[FILE_IN_CONTEXT], os.environ, context, flags_of(up))
    return {f"{each.section}.{each.key}": (each.value, each.source) for each in found}


def test_the_file_outranks_the_default_a_variable_the_file_and_a_flag_both(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shown_by(path)
    assert found["up.port"] == ("9000", "hmas.yaml:2")
    assert found["up.host"] == ("127.0.0.1", "default")
    assert found["gateway.port"] == ("9000", "hmas up, port")
    assert found["gateway.max_requests"] == ("5", "hmas.yaml:9")
    assert found["gateway.max_connections"] == ("8192", "default")
    assert found["every_service.trace_ratio"] == ("0.5", "hmas.yaml:7")
    assert found["worker.trace_ratio"] == ("0.25", "hmas.yaml:12")
    assert "gateway.trace_ratio" not in found
    monkeypatch.setenv("HMAS_PORT", "9100")
    monkeypatch.setenv("HMAS_CONSOLE_PORT", "9101")
    monkeypatch.setenv("HMAS_MAX_REQUESTS", "6")
    found = shown_by(path)
    assert found["up.port"] == ("9100", "HMAS_PORT")
    assert found["up.console_port"] == ("9101", "HMAS_CONSOLE_PORT")
    assert found["gateway.max_requests"] == ("6", "HMAS_MAX_REQUESTS")
    monkeypatch.setenv("HMAS_TENANTS_FILE", "theirs.yaml")
    assert shown_by(path)["gateway.tenants_file"] == ("theirs.yaml", "HMAS_TENANTS_FILE")
    assert shown_by(path, "--tenants", "mine.yaml")["gateway.tenants_file"] == ("mine.yaml", "hmas up, tenants")
    assert shown_by(path, "--port", "9200")["up.port"] == ("9200", "flag --port")


def test_no_login_is_shown(path: Path) -> None:
    found = shown_by(path)
    assert found["every_service.otlp_endpoint"][0] == "http://***@collector:4318"
    assert found["meta.llm_url"][0] == found["up.llm_url"][0] == "http://***@llm:8000/v1"
    assert not [name for name, (value, _) in found.items() if "hunter2" in value]


def test_what_is_named_like_a_secret_and_is_no_file_is_masked(path: Path) -> None:
    assert shown("engine_api_key_file", str(path)) == str(path)
    assert shown("engine_api_key_file", "sk-123") == shown("nats_password_file", "x" * 5000) == "***"
    assert shown("otlp_endpoint", "http://c:1/?a=1&api_key=abc&b=2") == "http://c:1/?a=1&api_key=***&b=2"
    assert shown("max_queued_tokens", "5") == "5"


def test_services_get_what_the_file_says_and_the_environment_does_not(path: Path) -> None:
    file = read_mesh_file(path, flags_of(up))
    given = variables(file, {"HMAS_JOURNAL": "1", "hmas_trace_ratio": "1"})
    assert given["gateway"] == {"HMAS_MAX_REQUESTS": "5", "HMAS_OTLP_ENDPOINT": "http://user:hunter2@collector:4318"}
    assert variables(file, {})["worker"]["HMAS_TRACE_RATIO"] == "0.25"
    assert defaults_of_flags(file, {"HMAS_LLM_URL": "http://other"})["llm_url"] == "http://other"


def test_a_mesh_starts_its_services_with_them(path: Path, tmp_path: Path) -> None:
    file = read_mesh_file(path, flags_of(up))
    options = MeshOptions(
        port=0, data_dir=tmp_path / "data", llm_url="http://llm", console_port=0, settings=variables(file, {})
    )
    started = {spec.name: spec.env for spec in make_plan(options).processes}
    assert started["gateway"]["HMAS_JOURNAL"] == "7"
    assert started["worker-2"]["HMAS_TRACE_RATIO"] == "0.25"
    assert started["console"]["HMAS_TRACE_RATIO"] == started["qos"]["HMAS_TRACE_RATIO"] == "0.5"
    assert started["meta"]["HMAS_SELECTOR"] == "rules"
    assert "HMAS_JOURNAL" not in started["worker-1"]


def test_what_hmas_up_sets_itself_no_file_may_set(tmp_path: Path) -> None:
    """The table of these settings is what a mesh of every kind gives its processes."""
    keys = {name: tmp_path / name for name in ("engines", "llm", "cert", "key", "tenants")}
    for secret in keys.values():
        secret.write_text("x")
    options = MeshOptions(
        port=0, data_dir=tmp_path / "data", engine_urls=("http://127.0.0.1:9",), model="m", aliases=("n",),
        engine_api_key_file=keys["engines"], llm_url="http://llm", llm_api_key_file=keys["llm"], console_port=0,
        tls_cert=keys["cert"], tls_key=keys["key"], tenants=keys["tenants"],
    )  # fmt: skip
    plans = [make_plan(options), make_plan(MeshOptions(port=0, data_dir=tmp_path / "other", console_port=0))]
    conditional = {"worker": {"split"}, "meta": {"selector"}}
    for spec in (spec for plan in plans for spec in plan.processes):
        service = spec.name.partition("-")[0]
        if service not in SERVICES:
            continue
        for variable in spec.env:
            key = variable.removeprefix("HMAS_").lower()
            if key in SERVICES[service].model_fields and key not in conditional.get(service, set()) | NATS_LOGIN:
                assert flag_that_sets(service, key) is not None, (service, key)
    for section, planned in PLANNED.items():
        assert planned <= SECTIONS[section].model_fields.keys()
    given = {key for spec in plans[0].processes for key in spec.env}
    for section in SECTIONS:
        for key in SECTIONS[section].model_fields:
            if flag_that_sets(section, key) is not None and key not in ("max_num_seqs", "hardware"):
                assert f"HMAS_{key}".upper() in given | {"HMAS_REHEARSAL_PROFILE"}, (section, key)


def test_the_schema_takes_the_file_and_not_a_misspelt_one() -> None:
    schema = config_schema(flags_of(up))
    Draft202012Validator.check_schema(schema)
    check: Any = Draft202012Validator(schema)
    good = {"up": {"engine": ["http://a:1"], "port": 1}, "gateway": {"max_requests": 5, "cors_origins": ["*"]}}
    assert check.is_valid(good)
    assert check.is_valid({"meta": {"rehearse": "off", "usual_topology": "edf"}, COMMON: None})
    wrong: dict[str, Any]
    for wrong in (
        {"gatway": {}}, {"up": {"prot": 1}}, {"up": {"port": "x"}}, {"up": {"emulated": 65}},
        {"gateway": {"max_requests": 0}}, {"gateway": {"port": 1}}, {"statera": {"n_run_rule": "x"}},
    ):  # fmt: skip
        assert not check.is_valid(wrong), wrong


def test_the_commands_print_and_refuse(path: Path) -> None:
    runner = CliRunner()
    shown_text = runner.invoke(app, ["show", "--config", str(path), "--changed", "--port", "9200"]).stdout
    assert [line.split() for line in shown_text.splitlines() if line.startswith("up.port")] == [
        ["up.port", "9200", "flag", "--port"]
    ]
    assert "max_connections" not in shown_text
    assert "max_connections" in runner.invoke(app, ["show"]).stdout
    checked = runner.invoke(app, ["check", "--config", str(path)])
    assert (checked.exit_code, checked.stdout.split(": ")[-1]) == (0, "3 flags and 6 settings, all valid\n")
    path.write_text("gateway: {journl: 1}")
    for command in ("check", "show"):
        wrong = runner.invoke(app, [command, "--config", str(path)])
        assert wrong.exit_code == 1
        assert "did you mean journal?" in wrong.stderr
    assert (
        json.loads(runner.invoke(app, ["schema"]).stdout)["properties"]["up"]["properties"]["port"]["type"] == "integer"
    )
