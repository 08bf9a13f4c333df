"""From options to processes, and the file other commands find the mesh by."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hmas.engine.core.profile import builtin_profile
from hmas.mesh.options import MeshOptions
from hmas.mesh.processes import make_plan
from hmas.mesh.state import MeshState, NoMesh, forget_state, read_state, sole_owner
from hmas.wire.permissions import USERS


def test_the_default_mesh_has_every_service_and_two_engines(tmp_path: Path) -> None:
    plan = make_plan(MeshOptions(data_dir=tmp_path, port=0))
    names = [p.name for p in plan.processes]
    assert names == [
        "nats", "engine-1", "engine-2", "perception", "prediction", "qos", "meta", "statera", "worker-1", "worker-2",
        "gateway",
    ]  # fmt: skip
    ports = [url.rsplit(":", 1)[1].split("/")[0] for url in plan.ready_urls.values()]
    assert len(set(ports)) == len(ports)
    assert plan.first == {"nats"}


def test_only_who_can_read_the_data_directory_can_connect_to_its_nats_server(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    plans = [make_plan(MeshOptions(data_dir=folder, port=0)) for _ in range(2)]
    files = {user.name: folder / "secrets" / f"nats-{user.name}" for user in USERS}
    passwords = {user: file.read_text() for user, file in files.items()}
    assert len(set(passwords.values())) == len(USERS)
    config = (folder / "nats.conf").read_text()
    assert config.count('"password"') == len(USERS)
    assert json.loads(config)["max_connections"] <= 4096
    assert all(folder.stat().st_mode & 0o777 == 0o700 for folder in (folder, folder / "secrets"))
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (folder / "nats.conf", *files.values()))
    files |= {"mesh": folder / "secrets" / "mesh", "ops": folder / "secrets" / "ops"}
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in files.values())
    passwords |= {name: files[name].read_text() for name in ("mesh", "ops")}
    assert {p.nats_password_file for p in plans} == {str(files["operator"])}
    for process in plans[1].processes:
        told = (*process.argv, *process.env.values())
        assert not any(password in text for text in told for password in passwords.values())
        if not process.name.startswith(("nats", "engine")):
            role = process.name.partition("-")[0]
            assert process.env["HMAS_NATS_USER"] == role
            assert process.env["HMAS_NATS_PASSWORD_FILE"] == str(files[role])
            assert process.env["HMAS_OPS_TOKEN_FILE"] == str(files["ops"])
            secret = process.env.get("HMAS_MESH_SECRET_FILE")
            assert secret == (None if role in ("qos", "meta", "statera") else str(files["mesh"]))


def test_the_console_is_a_process_that_the_mesh_does_not_wait_for(tmp_path: Path) -> None:
    assert make_plan(MeshOptions(data_dir=tmp_path, port=0)).console_url == ""
    plan = make_plan(MeshOptions(data_dir=tmp_path, port=0, console_port=0))
    console = plan.processes[-1]
    assert console.name == "console"
    assert not {"console"} & {*plan.ready_urls, *plan.ops_urls, *plan.first}
    assert plan.state({}).console_url == plan.console_url == f"http://127.0.0.1:{console.env['HMAS_CONSOLE_PORT']}"
    assert console.env["HMAS_NATS_USER"] == "operator"
    assert "HMAS_MESH_SECRET_FILE" not in console.env
    tokens = [Path(console.env[f"HMAS_CONSOLE_{name}TOKEN_FILE"]) for name in ("", "ADMIN_")]
    assert len({file.read_text() for file in tokens}) == 2
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in tokens)
    assert not any(file.read_text() in value for file in tokens for value in console.env.values())


def test_certificates_of_a_mesh_need_a_nats_server_that_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HMAS_MESH_CA_FILE", "ca.pem")
    with pytest.raises(ValueError, match="unset HMAS_MESH_CA_FILE"):
        make_plan(MeshOptions(data_dir=tmp_path, port=0))
    make_plan(MeshOptions(data_dir=tmp_path, port=0, nats_url="nats://elsewhere:4222"))


def test_workers_share_given_engines_and_secrets_travel_by_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    urls = ("http://a:1", "http://b:1", "http://c:1")
    options = MeshOptions(
        data_dir=tmp_path, port=0, engine_urls=urls, workers=2, model="m", engine_api_key_file=key, max_num_seqs=64,
        nats_url="nats://elsewhere:4222", llm_url="http://llm/v1", llm_model="x", llm_api_key_file=key,
    )  # fmt: skip
    plan = make_plan(options)
    by_name = {p.name: p for p in plan.processes}
    assert not any(name.startswith(("nats", "engine")) for name in by_name)
    engines = [json.loads(by_name[f"worker-{n}"].env["HMAS_ENGINES"]) for n in (1, 2)]
    assert [[e["url"] for e in es] for es in engines] == [["http://a:1", "http://c:1"], ["http://b:1"]]
    assert engines[0][0]["max_num_seqs"] == 64
    assert by_name["meta"].env["HMAS_SELECTOR"] == "llm"
    assert "secret" not in [value for p in plan.processes for value in p.env.values()]
    assert all(p.env["HMAS_NATS_URL"] == "nats://elsewhere:4222" for p in plan.processes)


def engines_of(options: MeshOptions) -> list[dict[str, object]]:
    workers = [p for p in make_plan(options).processes if p.name.startswith("worker")]
    return [engine for worker in workers for engine in json.loads(worker.env["HMAS_ENGINES"])]


def test_workers_are_told_what_their_engines_run_on(tmp_path: Path) -> None:
    given = MeshOptions(data_dir=tmp_path, port=0, engine_urls=("http://a:1",), model="m")
    assert engines_of(given) == [{"url": "http://a:1"}]
    assert engines_of(replace(given, hardware="H100x2")) == [{"url": "http://a:1", "hardware": "H100x2"}]
    emulated = MeshOptions(data_dir=tmp_path, port=0, profile="llama2-70b-a100x4")
    assert {engine["hardware"] for engine in engines_of(emulated)} == {"a100-80gbx4"}


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("source", "endpoints"),
    [("dns+http://vllm:8100", "http://*:8100"), ("file+engines.yaml", "http://*:*,https://*:*")],
)
def test_two_workers_share_the_engines_of_a_source(tmp_path: Path, source: str, endpoints: str) -> None:
    options = MeshOptions(
        data_dir=tmp_path, port=0, model="m", engine_urls=(source,), max_num_seqs=64, hardware="H100"
    )  # fmt: skip
    env = {process.name: process.env for process in make_plan(options).processes}
    for worker in ("worker-1", "worker-2"):
        told = {name: env[worker][name] for name in ("HMAS_ENGINES", "HMAS_MAX_NUM_SEQS", "HMAS_HARDWARE")}
        assert told == {"HMAS_ENGINES": source, "HMAS_MAX_NUM_SEQS": "64", "HMAS_HARDWARE": "H100"}
    assert "worker-3" not in env
    assert env["gateway"]["HMAS_ENGINE_ENDPOINTS"] == endpoints
    with pytest.raises(ValueError, match="stands alone"):
        make_plan(replace(options, engine_urls=(source, "http://a:1")))


def test_no_two_services_of_one_machine_are_given_one_grpc_port_by_the_environment(tmp_path: Path) -> None:
    env = {process.name: process.env for process in make_plan(MeshOptions(data_dir=tmp_path, port=0)).processes}
    assert {env[name]["HMAS_GRPC_PORT"] for name in ("qos", "meta", "statera")} == {"0"}


def test_compose_and_kubernetes_name_the_card_of_the_profile_that_they_start() -> None:
    card = builtin_profile(MeshOptions().profile).hardware
    values = yaml.safe_load((ROOT / "deploy/helm/values/emulated.yaml").read_text())
    assert values["engines"]["hardware"] == card
    assert (ROOT / "docker-compose.yml").read_text().count(f'"hardware": "{card}"') == 2


def test_state_is_found_and_its_absence_explained(tmp_path: Path) -> None:
    state = MeshState(
        gateway_url="http://g", nats_url="nats://n", nats_password_file="", ops_token_file="t", pool="m", engine_urls=("http://e",),
        ops_urls={"qos": "http://q"}, pids={"qos": 7},
    )  # fmt: skip
    state.write(tmp_path)
    assert read_state(tmp_path) == state
    (tmp_path / "mesh.json").write_text("{")
    with pytest.raises(NoMesh, match="start it again"):
        read_state(tmp_path)
    forget_state(tmp_path)
    with pytest.raises(NoMesh, match="hmas up"):
        read_state(tmp_path)


def test_a_second_mesh_is_kept_out_of_the_data_directory_until_the_first_ends(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    with sole_owner(folder), pytest.raises(ValueError, match="--data-dir another folder"), sole_owner(folder):
        pass
    with sole_owner(folder):
        pass
