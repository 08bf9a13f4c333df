"""X.509 certificates: checked before they are used, so that a wrong one is refused in words, and loaded again when
their files change."""

import asyncio
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import structlog
from prometheus_client import Gauge

from hmas.runtime.extras import CannotStart

log = structlog.get_logger()

WATCH_S = 5.0
EXPIRES = Gauge("hmas_certificate_expires_timestamp_seconds", "When the certificate in use expires", ["use"])


class CertificateRefused(CannotStart):
    """A certificate, its key or its CA cannot be used; the message names the file and says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files of a certificate with its chain, of its private key without a password, and of the CA that must have
    signed it; None if any may have."""

    cert: Path
    key: Path
    ca: Path | None = None

    def check(self) -> float:
        """Returns when the certificate expires, in seconds since 1970. Raises CertificateRefused if the files cannot be
        read or do not belong together, or if the certificate is not valid now.

        A handshake in memory decides, by the very rules that a peer applies. With a CA the certificate must serve for
        both sides of a connection.
        """
        near = self.context(ssl.PROTOCOL_TLS_SERVER)
        far = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        far.check_hostname = False
        if self.ca is None:
            far.load_verify_locations(self.cert)
            far.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # the certificate vouches for itself
        else:
            far = self.context(ssl.PROTOCOL_TLS_CLIENT)
            far.check_hostname = False
        try:
            certificate = _handshake(near, far)
        except ssl.SSLCertVerificationError as error:
            signed = f" (its CA: {self.ca})" if self.ca else ""
            raise CertificateRefused(
                f"the certificate {self.cert} is refused: {error.verify_message}{signed}"
            ) from None
        return ssl.cert_time_to_seconds(str(certificate["notAfter"]))

    def context(self, protocol: int) -> ssl.SSLContext:
        """Returns a context with the certificate and, with a CA, asks the peer for one of the same CA. Raises
        CertificateRefused if a file cannot be read."""
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if self.ca is None else ssl.TLSVersion.TLSv1_3
        if self.ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise CertificateRefused(f"the CA {self.ca} cannot be read: {error}") from None
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Raises CertificateRefused if certificate or key cannot be read, or if they do not belong together."""
        try:
            context.load_cert_chain(self.cert, self.key, password=self._ask_nobody)
        except ssl.SSLError as error:
            reason = "they do not belong together" if error.reason == "KEY_VALUES_MISMATCH" else f"{error.reason}"
            raise CertificateRefused(f"the certificate {self.cert} with the key {self.key}: {reason}") from None
        except OSError as error:
            raise CertificateRefused(f"the certificate {self.cert} with the key {self.key}: {error.strerror}") from None

    def _ask_nobody(self) -> NoReturn:
        raise CertificateRefused(f"the key {self.key} is encrypted: give one without a password")

    def stamp(self) -> tuple[float, ...]:
        """Returns what changes when one of the files does. Raises OSError if one is missing, as for a moment while they
        are replaced."""
        return tuple(path.stat().st_mtime for path in (self.cert, self.key, self.ca) if path is not None)


class Certificate:
    """A certificate in use. `contexts` are those in which it is replaced when its files change; `renewed` are called
    then. Raises CertificateRefused."""

    def __init__(self, use: str, files: CertificateFiles) -> None:
        self.use, self.files = use, files
        self.contexts: list[ssl.SSLContext] = []
        self.renewed: list[Callable[[], None]] = []
        self._show(files.check())
        self._stamp = files.stamp()
        self._refused: tuple[float, ...] | None = None

    def context(self, protocol: int) -> ssl.SSLContext:
        context = self.files.context(protocol)
        self.contexts.append(context)
        return context

    def refresh(self) -> None:
        """Takes over changed files. A wrong certificate is reported once, and the one before stays in use."""
        try:
            stamp = self.files.stamp()
            if stamp in (self._stamp, self._refused):
                return
            self._refused = stamp
            expires_s = self.files.check()
        except (OSError, CertificateRefused) as error:
            log.warning("certificate_refused", use=self.use, error=str(error), effect="the one before stays in use")
            return
        for context in self.contexts:
            self.files.load_into(context)
            if self.files.ca is not None:
                context.load_verify_locations(self.files.ca)
        self._stamp, self._refused = stamp, None
        self._show(expires_s)
        log.info("certificate_renewed", use=self.use, days=round((expires_s - time.time()) / 86400, 1))
        for renewed in self.renewed:
            renewed()

    def doubt(self) -> str:
        """Returns what to add to the report of a peer that closed a connection without a word."""
        if time.time() > self._expires_s:
            return ": the certificate of this process has expired"
        return " (perhaps it does not accept the certificate of this process)"

    async def watch(self) -> None:
        """Looks at the files every `WATCH_S` seconds until cancelled."""
        while True:
            await asyncio.sleep(WATCH_S)
            self.refresh()

    def _show(self, expires_s: float) -> None:
        self._expires_s = expires_s
        EXPIRES.labels(self.use).set(expires_s)


def _handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> dict[str, object]:
    """Connects two contexts in memory and returns the server's certificate as the client sees it. Raises SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    waiting = True
    while waiting:
        waiting = False
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                waiting = True
    return dict(ends[0].getpeercert() or {})
