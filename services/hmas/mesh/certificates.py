"""The command `hmas certificates`: a certificate authority of the mesh's own, and a certificate for each service."""

import datetime
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hmas.mesh.nats_server import write_secret
from hmas.wire.permissions import USERS

ROLES = (*(user.name for user in USERS), "nats")
CA_DAYS = 3650
CLOCK_SKEW = datetime.timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority and its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make_certificates(folder: Path, days: float, names: Sequence[str] = ()) -> list[Path]:
    """Writes what is missing or has less than a third of its days left: the authority (`ca.pem`, `ca-key.pem`), and for
    each role a folder with `ca.pem`, `cert.pem` and `key.pem`. A certificate is for the role's name and for `names`.
    Returns the certificates that were written. Raises OSError, and ValueError if what is there cannot be read."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = _authority(folder)
    written = []
    for role in ROLES:
        home = folder / role
        home.mkdir(exist_ok=True)
        chain = authority.certificate.public_bytes(serialization.Encoding.PEM).decode()
        cert = home / "cert.pem"
        if (home / "ca.pem").exists() and (home / "ca.pem").read_text() == chain and _lasts(cert, (role, *names), days):
            continue
        certificate, key = issue(authority, role, (role, *names), days)
        write_secret(home / "key.pem", _private(key))
        _replace(cert, certificate.public_bytes(serialization.Encoding.PEM).decode())
        _replace(home / "ca.pem", chain)
        written.append(cert)
    return written


def _authority(folder: Path) -> Authority:
    cert, key = folder / "ca.pem", folder / "ca-key.pem"
    if cert.exists() and key.exists():
        private = serialization.load_pem_private_key(key.read_bytes(), None)
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise ValueError(f"{key} is not a key that `hmas certificates` made: give another folder")
        return Authority(x509.load_pem_x509_certificate(cert.read_bytes()), private)
    authority = make_authority(CA_DAYS)
    write_secret(key, _private(authority.key))
    _replace(cert, authority.certificate.public_bytes(serialization.Encoding.PEM).decode())
    return authority


def make_authority(days: float) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "H-MAS mesh")])
    usage = x509.KeyUsage(
        digital_signature=False, content_commitment=False, key_encipherment=False, data_encipherment=False,
        key_agreement=False, key_cert_sign=True, crl_sign=True, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        _builder(name, key, days)
        .issuer_name(name)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Authority(builder.sign(key, hashes.SHA256()), key)


def issue(
    authority: Authority, role: str, names: Sequence[str], days: float
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Returns a new certificate for `names` (DNS names and IP addresses), for both sides of a connection, and its
    key."""
    key = ec.generate_private_key(ec.SECP256R1())
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key())
    builder = (
        _builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, role)]), key, days)
        .issuer_name(authority.certificate.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_general, names))), critical=False)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(issuer_key, critical=False)
    )
    return builder.sign(authority.key, hashes.SHA256()), key


def _builder(subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: float) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin, end = now - CLOCK_SKEW, now + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(begin, end - CLOCK_SKEW))
        .not_valid_after(end)
    )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _lasts(path: Path, names: Sequence[str], days: float) -> bool:
    """Returns whether there is a certificate for these names that has more than a third of its days left."""
    if not path.exists() or not path.with_name("key.pem").exists():
        return False
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    had = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    left = certificate.not_valid_after_utc - datetime.datetime.now(datetime.UTC)
    return set(had) == set(map(_general, names)) and left > datetime.timedelta(days=days / 3)


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def _replace(path: Path, text: str) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(text)
    scratch.replace(path)


def certificates(
    folder: Annotated[Path, typer.Argument(help="folder of the CA, with one for each service; what lasts is kept")],
    name: Annotated[
        list[str] | None, typer.Option(help="DNS name or address that every certificate is for; repeat it for several")
    ] = None,
    days: Annotated[float, typer.Option(min=0.01, help="days for which a certificate is valid")] = 90.0,
) -> None:
    """Make a certificate authority and a certificate for each service, or renew those that end."""
    for path in make_certificates(folder, days, name or ()):
        typer.echo(f"made {path}")
