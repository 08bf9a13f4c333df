"""How the processes of one mesh recognise one another: by a secret that they share, by certificates of the mesh's own
CA, or by both."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from hmas.runtime.certificates import Certificate, CertificateFiles
from hmas.runtime.extras import CannotStart
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.handshake import MeshSecret

# The names in the certificates of both ends of a stream. Workers are found by addresses that change.
GATEWAY_NAME, WORKER_NAME = "gateway", "worker"


class MeshTls:
    """Mutual TLS with a certificate of the mesh's CA: contexts for streams and NATS; `runtime/rpc.py` reads the
    files for gRPC."""

    def __init__(self, certificate: Certificate) -> None:
        self.certificate = certificate
        self.server = certificate.context(ssl.PROTOCOL_TLS_SERVER)
        self.client = certificate.context(ssl.PROTOCOL_TLS_CLIENT)

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Returns CA, key and certificate as PEM. Raises OSError."""
        files = self.certificate.files
        assert files.ca is not None
        return files.ca.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()


@dataclass(frozen=True, slots=True)
class MeshSecurity:
    """What this process has to recognise the others, and to be recognised by them."""

    secret: MeshSecret | None = None
    tls: MeshTls | None = None

    def check_host(self, variable: str, host: str) -> None:
        """Raises CannotStart if a port would listen beyond this machine without a check of who connects."""
        if self.secret is None and self.tls is None and not on_loopback(host):
            raise CannotStart(
                f"{variable}={host} would let in everybody who reaches this port: set HMAS_MESH_SECRET_FILE to a file "
                "with a secret that all services of the mesh have, or listen on 127.0.0.1"
            )

    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata by which a gRPC server recognises a call of this mesh."""
        return (("authorization", f"Bearer {self.secret.token}"),) if self.secret is not None else ()

    @asynccontextmanager
    async def kept_fresh(self) -> AsyncIterator[None]:
        """Follows the files of the certificate meanwhile."""
        watching = asyncio.create_task(self.tls.certificate.watch()) if self.tls is not None else None
        try:
            yield
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)


OPEN = MeshSecurity()


def security_of(settings: RuntimeSettings) -> MeshSecurity:
    """Returns what the settings name, the same object each time. Raises CannotStart, or OSError if the file of the
    secret cannot be read."""
    return _read(settings.mesh_secret_file, settings.mesh_ca_file, settings.mesh_cert_file, settings.mesh_key_file)


@lru_cache(maxsize=8)
def _read(secret_file: Path | None, ca: Path | None, cert: Path | None, key: Path | None) -> MeshSecurity:
    secret = None
    if secret_file is not None:
        try:
            secret = MeshSecret(secret_file.read_bytes().strip())
        except ValueError as error:
            raise CannotStart(f"HMAS_MESH_SECRET_FILE={secret_file}: {error}") from None
    if ca is None and cert is None and key is None:
        return MeshSecurity(secret)
    if ca is None or cert is None or key is None:
        raise CannotStart("set all of HMAS_MESH_CA_FILE, HMAS_MESH_CERT_FILE and HMAS_MESH_KEY_FILE, or none of them")
    return MeshSecurity(secret, MeshTls(Certificate("mesh", CertificateFiles(cert=cert, key=key, ca=ca))))


def on_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
