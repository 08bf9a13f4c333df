"""`hmas secrets`: each service's own, made once."""

import json
from pathlib import Path

import pytest

from hmas.mesh.secrets import NATS_USERS, RECOGNISED, make_secrets
from hmas.wire.permissions import USERS


def test_each_user_has_a_password_of_its_own_and_the_secret_is_shared(tmp_path: Path) -> None:
    made = make_secrets(tmp_path)
    passwords = {user.name: (tmp_path / user.name / "nats_password").read_text() for user in USERS}
    assert len(set(passwords.values())) == len(USERS)
    assert all(len(password) >= 32 for password in passwords.values())
    assert len({(tmp_path / role / "mesh_secret").read_text() for role in RECOGNISED}) == 1
    assert not any((tmp_path / role / "mesh_secret").exists() for role in ("qos", "meta", "statera", "operator"))
    tokens = {(tmp_path / "operator" / name).read_text() for name in ("console_token", "console_admin_token")}
    assert len(tokens) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in made)
    text = (tmp_path / "nats" / NATS_USERS).read_text()
    users = json.loads(text.removeprefix("authorization: "))["users"]
    assert {user["user"]: user["password"] for user in users} == passwords
    assert all("permissions" in user for user in users)


def test_what_is_there_stays_and_what_is_missing_is_made(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    before = {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert make_secrets(tmp_path) == []
    assert {path: path.read_text() for path in tmp_path.rglob("*") if path.is_file()} == before
    (tmp_path / "worker" / "mesh_secret").write_text("")
    (tmp_path / "qos" / "nats_password").unlink()
    assert len(make_secrets(tmp_path)) == 2
    assert (tmp_path / "worker" / "mesh_secret").read_text() == (tmp_path / "gateway" / "mesh_secret").read_text()
    (tmp_path / "worker" / "mesh_secret").write_text("another secret of a mesh, which differs")
    with pytest.raises(OSError, match="differs from the gateway's"):
        make_secrets(tmp_path)
