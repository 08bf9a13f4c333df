"""Certificates of a test's own authority, made by the code behind `hmas certificates`."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives import serialization

from hmas.mesh.certificates import Authority, issue, make_authority
from hmas.runtime.certificates import Certificate, CertificateFiles
from hmas.runtime.security import MeshSecurity, MeshTls
from hmas.wire.handshake import MeshSecret


@dataclass(frozen=True)
class Issuer:
    """An authority and the folder in which its certificates are written."""

    folder: Path
    authority: Authority

    def issue(self, name: str, *names: str, days: float = 1.0, file: str = "") -> CertificateFiles:
        """Writes a certificate for `name` and `names`, and returns its files."""
        cert, key = issue(self.authority, name, (name, *names), days)
        pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        at = {kind: self.folder / f"{file or name}.{kind}.pem" for kind in ("ca", "cert", "key")}
        at["ca"].write_bytes(self.authority.certificate.public_bytes(pem))
        at["cert"].write_bytes(cert.public_bytes(pem))
        at["key"].write_bytes(key.private_bytes(pem, form, serialization.NoEncryption()))
        return CertificateFiles(cert=at["cert"], key=at["key"], ca=at["ca"])

    def security(self, name: str, *names: str, secret: bytes = b"") -> MeshSecurity:
        tls = MeshTls(Certificate("mesh", self.issue(name, *names)))
        return MeshSecurity(MeshSecret(secret) if secret else None, tls)


def issuer(folder: Path) -> Issuer:
    folder.mkdir(parents=True, exist_ok=True)
    return Issuer(folder, make_authority(1.0))
