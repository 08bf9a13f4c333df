"""`hmas doctor`'s checks and the generated pages."""

import socket
from pathlib import Path

from docs import build as pages
from hmas.mesh import doctor
from hmas.mesh.services import SERVICE_SETTINGS


def test_a_taken_port_says_what_to_do() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        port = held.getsockname()[1]
        taken = doctor.check_port("API", port, mesh_runs=False)
        assert (taken.verdict, bool(taken.advice)) == ("fail", True)
        assert doctor.check_port("API", port, mesh_runs=True).verdict == "ok"


def test_unreachable_urls_and_unwritable_folders_fail_with_advice(tmp_path: Path) -> None:
    engine = doctor.check_http("engine", "http://127.0.0.1:9", "/health", "start the engine")
    assert (engine.verdict, engine.advice) == ("fail", "start the engine")
    assert doctor.check_http("engine", "nonsense", "/health", "x").verdict == "fail"
    file = tmp_path / "file"
    file.write_text("")
    assert doctor.check_data_dir(file / "below").verdict == "fail"
    assert doctor.check_data_dir(tmp_path / "new").verdict in ("ok", "warn")


def test_a_wrong_tenants_file_is_named(tmp_path: Path) -> None:
    from hmas.gateway.tenants.store import load_tenants

    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: [1, 2]")
    finding = doctor.check_tenants(path, load_tenants)
    assert finding.verdict == "fail"
    assert str(path) in finding.advice


def test_every_setting_is_described() -> None:
    for service, cls in SERVICE_SETTINGS.items():
        for name, field in cls.model_fields.items():
            assert field.description, f"{service}: {name}"


def test_subjects_page_names_every_subject() -> None:
    page = pages.subjects_page()
    for word in ("telemetry.worker", "control.tuple", "TopologyDecision", "lease.meta", "valid_for_s"):
        assert word in page
