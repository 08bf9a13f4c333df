"""`hmas doctor`'s checks and the generated pages."""

import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from docs import build as pages
from docs.services import SERVICE_SETTINGS
from hmas.mesh import doctor


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


def test_what_is_not_http_is_said_to_be_something_else() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def greet() -> None:
            peer, _ = server.accept()
            with peer:
                peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
                peer.recv(4096)

        with ThreadPoolExecutor(1) as threads:
            greeted = threads.submit(greet)
            found = doctor.check_http("engine", f"http://127.0.0.1:{port}", "/health", "give the engine's port")
            greeted.result()
    assert (found.verdict, found.advice) == ("fail", "give the engine's port")
    assert "answers, but not in HTTP: 'SSH-2.0-OpenSSH_9.2" in found.detail


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
