"""Certificates are checked before they are used, refused in words, and taken over when their files change."""

import os
import ssl
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog.testing

from hmas.mesh.certificates import ROLES, make_certificates
from hmas.runtime.certificates import Certificate, CertificateFiles, CertificateRefused
from hmas.runtime.extras import CannotStart
from hmas.runtime.security import OPEN, MeshSecurity, security_of
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.handshake import MeshSecret
from tests.certificates import issuer

DAY_S = 86_400.0


def later(files: CertificateFiles) -> None:
    """Gives the files a time of change that differs from the one before."""
    stamp = time.time() + 10
    for path in (files.cert, files.key):
        os.utime(path, (stamp, stamp))


def test_a_good_certificate_tells_when_it_expires(tmp_path: Path) -> None:
    files = issuer(tmp_path).issue("gateway", days=2)
    for each in (files, replace(files, ca=None)):
        assert 1.9 * DAY_S < each.check() - time.time() < 2.1 * DAY_S


def test_what_cannot_be_used_is_refused_in_words(tmp_path: Path) -> None:
    ours, theirs = issuer(tmp_path / "ours"), issuer(tmp_path / "theirs")
    good, other, old = ours.issue("gateway"), theirs.issue("worker"), ours.issue("meta", days=-1)
    (tmp_path / "text").write_text("no certificate")
    wrong = {
        "has expired": old,
        "has expired$": replace(old, ca=None),
        "(?i)self-signed|unable to get local issuer": replace(good, ca=other.ca),
        "do not belong together": replace(good, key=other.key),
        "No such file": replace(good, cert=tmp_path / "none"),
        "CA .* cannot be read": replace(good, ca=tmp_path / "none"),
        "text": replace(good, cert=tmp_path / "text"),
    }
    for reason, files in wrong.items():
        with pytest.raises(CertificateRefused, match=reason) as refused:
            files.check()
        assert "\n" not in str(refused.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked(tmp_path: Path) -> None:
    files = issuer(tmp_path).issue("gateway")
    assert os.system(f"openssl pkey -in {files.key} -aes256 -passout pass:x -out {tmp_path / 'locked'}") == 0
    with pytest.raises(CertificateRefused, match="without a password"):
        replace(files, key=tmp_path / "locked").check()


def test_a_changed_certificate_is_taken_over_and_a_wrong_one_is_told_once(tmp_path: Path) -> None:
    authority = issuer(tmp_path)
    files = authority.issue("gateway")
    certificate = Certificate("mesh", files)
    renewed: list[int] = []
    context = certificate.context(ssl.PROTOCOL_TLS_SERVER)
    certificate.renewed.append(lambda: renewed.append(1))
    certificate.refresh()
    assert renewed == []
    authority.issue("gateway", days=-1)
    later(files)
    with structlog.testing.capture_logs() as logs:
        certificate.refresh()
        certificate.refresh()
    assert [(entry["event"], "expired" in entry["error"]) for entry in logs] == [("certificate_refused", True)]
    authority.issue("gateway", days=3)
    later(files)
    os.utime(files.cert, (1.0, 1.0))
    certificate.refresh()
    assert renewed == [1]
    assert context in certificate.contexts


def test_the_settings_belong_together_and_name_what_is_wrong(tmp_path: Path) -> None:
    files = issuer(tmp_path).issue("gateway")
    (tmp_path / "short").write_text("short\n")
    (tmp_path / "long").write_text("x" * 40 + "\n")
    whole: dict[str, Any] = {"mesh_ca_file": files.ca, "mesh_cert_file": files.cert, "mesh_key_file": files.key}
    assert security_of(RuntimeSettings()) == OPEN
    security = security_of(RuntimeSettings(**whole, mesh_secret_file=tmp_path / "long"))
    assert security is security_of(RuntimeSettings(**whole, mesh_secret_file=tmp_path / "long"))
    assert security.tls is not None
    assert security.secret is not None
    for missing in whole:
        with pytest.raises(CannotStart, match="set all of"):
            security_of(RuntimeSettings(**{**whole, missing: None}))
    with pytest.raises(CannotStart, match=r"short: .* at least 24"):
        security_of(RuntimeSettings(mesh_secret_file=tmp_path / "short"))
    with pytest.raises(OSError, match="none"):
        security_of(RuntimeSettings(mesh_secret_file=tmp_path / "none"))


def test_without_secret_or_certificate_a_port_is_for_this_machine_alone() -> None:
    for host in ("0.0.0.0", "::", "10.0.0.1", "worker-1"):
        with pytest.raises(CannotStart, match=r"HMAS_STREAM_HOST=.* HMAS_MESH_SECRET_FILE"):
            OPEN.check_host("HMAS_STREAM_HOST", host)
        MeshSecurity(MeshSecret(b"x" * 32)).check_host("HMAS_STREAM_HOST", host)
    for host in ("127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"):
        OPEN.check_host("HMAS_STREAM_HOST", host)


def test_the_command_makes_what_is_missing_and_renews_what_ends(tmp_path: Path) -> None:
    assert {path.parent.name for path in make_certificates(tmp_path, 30)} == set(ROLES)
    for role in ROLES:
        home = tmp_path / role
        files = CertificateFiles(cert=home / "cert.pem", key=home / "key.pem", ca=home / "ca.pem")
        assert 29 * DAY_S < files.check() - time.time() < 31 * DAY_S
        assert files.key.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ca-key.pem").stat().st_mode & 0o777 == 0o600
    authority = (tmp_path / "ca.pem").read_text()
    assert make_certificates(tmp_path, 30) == []
    assert len(make_certificates(tmp_path, 100)) == len(ROLES)  # 30 days are less than a third of 100
    assert len(make_certificates(tmp_path, 100, ["127.0.0.1", "mesh.example"])) == len(ROLES)
    assert make_certificates(tmp_path, 100, ["mesh.example", "127.0.0.1"]) == []
    (tmp_path / "qos" / "key.pem").unlink()
    assert make_certificates(tmp_path, 100, ["mesh.example", "127.0.0.1"]) == [tmp_path / "qos" / "cert.pem"]
    assert (tmp_path / "ca.pem").read_text() == authority
