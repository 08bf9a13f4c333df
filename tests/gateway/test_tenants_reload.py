"""What a gateway does when its tenants file becomes bad, empty or short of keys while it runs."""

from hashlib import sha256
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from hmas.gateway.tenants import store as store_module
from hmas.gateway.tenants.file import TenantFileError, parse_tenants
from hmas.gateway.tenants.store import TenantStore

DIGEST = sha256(b"hmas-one").hexdigest()
GOOD = f"tenants:\n  acme:\n    keys: [{{id: k1, sha256: '{DIGEST}'}}]\n"
BEARER = {b"authorization": b"Bearer hmas-one"}
DEEP = [
    "tenants: " + "[" * 3000 + "]" * 3000,
    "".join("  " * i + "a:\n" for i in range(3000)),
    "tenants: " + "{a: " * 3000 + "1" + "}" * 3000,
]


def loaded(tmp_path: Path) -> tuple[Path, TenantStore]:
    path = tmp_path / "tenants.yaml"
    path.write_text(GOOD)
    return path, TenantStore(path)


@pytest.mark.parametrize("text", DEEP)
def test_a_file_that_is_nested_too_deeply_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(TenantFileError, match="nested too deeply"):
        parse_tenants(text)
    path, store = loaded(tmp_path)
    path.write_text(text)
    with capture_logs() as logs:
        assert not store.poll()
    assert [(entry["event"], entry["log_level"]) for entry in logs] == [("tenants_rejected", "error")]
    assert store.authenticate(BEARER)


@pytest.mark.parametrize(
    "text", ["", "\n", "# gone\n", "tenants:\n", "tenants: {}\n", "tenants:\n  acme:\n    weight: 1\n"]
)
def test_a_file_that_lost_its_keys_is_refused_and_the_old_ones_stay(text: str, tmp_path: Path) -> None:
    path, store = loaded(tmp_path)
    path.write_text(text)
    with capture_logs() as logs:
        assert not store.poll()
    assert [entry["event"] for entry in logs] == ["tenants_rejected"]
    assert "no API key" in logs[0]["error"]
    assert store.authenticate(BEARER)
    path.write_text(GOOD.replace("acme", "initech"))
    assert store.poll()
    assert [limits.tenant for limits in store.limits()] == ["initech"]


def test_a_file_without_keys_may_get_some(tmp_path: Path) -> None:
    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {}\n")
    store = TenantStore(path)
    path.write_text("tenants:\n  acme: {}\n")
    assert store.poll()
    path.write_text(GOOD)
    assert store.poll()


def test_no_fault_of_a_reader_ends_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, store = loaded(tmp_path)
    path.write_text(GOOD + "\n")

    def fail(path: Path) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr(store_module, "load_tenants", fail)
    with capture_logs() as logs:
        assert not store.poll()
    assert "tenants_rejected" in [entry["event"] for entry in logs]
    assert store.authenticate(BEARER)
