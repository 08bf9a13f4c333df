"""From options to processes, and the file other commands find the mesh by."""

import json
from pathlib import Path

import pytest

from hmas.mesh.options import MeshOptions
from hmas.mesh.plan import make_plan
from hmas.mesh.state import MeshState, NoMesh, forget_state, read_state, sole_owner


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
    passwords = {Path(p.nats_password_file).read_text() for p in plans}
    assert len(passwords) == 1  # the newest start's
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all((folder / name).stat().st_mode & 0o777 == 0o600 for name in ("nats.conf", "nats.password"))
    (password,) = passwords
    for process in plans[1].processes:
        assert not any(password in text for text in (*process.argv, *process.env.values()))
        if not process.name.startswith(("nats", "engine")):
            assert process.env["HMAS_NATS_PASSWORD_FILE"] == str(folder / "nats.password")


def test_workers_share_given_engines_and_secrets_travel_by_file(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("secret")
    urls = ("http://a:1", "http://b:1", "http://c:1")
    options = MeshOptions(
        data_dir=tmp_path, engine_urls=urls, workers=2, model="m", engine_api_key_file=key, max_num_seqs=64,
        nats_url="nats://elsewhere:4222", llm_url="http://llm/v1", llm_model="x", llm_api_key_file=key,
    )  # fmt: skip
    plan = make_plan(options)
    by_name = {p.name: p for p in plan.processes}
    assert not any(name.startswith(("nats", "engine")) for name in by_name)
    engines = [json.loads(by_name[f"worker-{n}"].env["HMAS_ENGINES"]) for n in (1, 2)]
    assert [[e["url"] for e in es] for es in engines] == [["http://a:1", "http://c:1"], ["http://b:1"]]
    assert engines[0][0]["max_num_seqs"] == 64
    assert by_name["meta"].env["HMAS_SELECTOR"] == "llm"
    assert all("secret" not in value for p in plan.processes for value in p.env.values())
    assert all(p.env["HMAS_NATS_URL"] == "nats://elsewhere:4222" for p in plan.processes)


def test_state_is_found_and_its_absence_explained(tmp_path: Path) -> None:
    state = MeshState(
        gateway_url="http://g", nats_url="nats://n", nats_password_file="", pool="m", engine_urls=("http://e",),
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
