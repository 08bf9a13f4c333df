"""Who sends a request: keys against the tenants file, which is read again when it changes."""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from hmas.contracts.gateway import TenantLimits
from hmas.contracts.outcome import Outcome
from hmas.gateway.openai.errors import InvalidRequest
from hmas.gateway.tenants.file import MAX_KEY_BYTES, TenantFileError, TenantTable, parse_tenants
from hmas.gateway.tenants.terms import Tenant

log = structlog.get_logger()
POLL_S = 1.0
MAX_FILE_BYTES = 16 * 2**20

# Without a tenants file everyone is this tenant: a development mesh, where priorities are open to all.
KEYLESS = Tenant(name="default", priority_ceiling=-1000)


class TenantStore:
    """The tenants in force. A file that is bad at start raises; one that turns bad later is reported and ignored."""

    def __init__(self, path: Path | None) -> None:
        """Raises TenantFileError and OSError."""
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._table = TenantTable()
        if path is None:
            log.warning("keyless", effect="anyone who reaches this port may use it; set HMAS_TENANTS_FILE")
            return
        self._stamp = _stamp(path)
        self._table = load_tenants(path)
        log.info("tenants_loaded", tenants=len(self._table.tenants), keys=len(self._table.keys))

    def limits(self) -> tuple[TenantLimits, ...]:
        return self._table.limits()

    def authenticate(self, headers: Mapping[bytes, bytes]) -> Tenant:
        """Raises InvalidRequest (401) without a valid `Authorization: Bearer` key."""
        if self._path is None:
            return KEYLESS
        value = headers.get(b"authorization")
        if value is None:
            raise InvalidRequest(
                "no API key: send it as `Authorization: Bearer hmas-...`", outcome=Outcome.UNAUTHENTICATED
            )
        scheme, _, key = value.partition(b" ")
        tenant = None
        if scheme.lower() == b"bearer" and len(key) <= MAX_KEY_BYTES:
            tenant = self._table.tenant_of(key.strip())
        if tenant is None:
            raise InvalidRequest("this API key is not valid", outcome=Outcome.UNAUTHENTICATED)
        return tenant

    async def run(self, changed: Callable[[], None]) -> None:
        """Polls the file until cancelled; calls `changed` after each reload."""
        while True:
            await asyncio.sleep(POLL_S)
            if self.poll():
                changed()

    def poll(self) -> bool:
        """Reads the file again if it changed; whether the tenants did."""
        if self._path is None:
            return False
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._table = load_tenants(self._path)
        except (TenantFileError, OSError) as error:
            log.error("tenants_rejected", error=str(error), effect="the tenants loaded before stay in force")
            return False
        log.info("tenants_loaded", tenants=len(self._table.tenants), keys=len(self._table.keys))
        return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def load_tenants(path: Path) -> TenantTable:
    """Raises TenantFileError, which names the file, and OSError."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise TenantFileError(f"{path}: larger than {MAX_FILE_BYTES} bytes")
    try:
        return parse_tenants(data.decode())
    except UnicodeDecodeError:
        raise TenantFileError(f"{path}: not UTF-8") from None
    except TenantFileError as error:
        raise TenantFileError(f"{path}: {error}") from None
