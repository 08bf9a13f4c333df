"""Finds the tenant of a request by its API key. The tenants file is read again when it changes."""

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

# The tenant of every request if there is no tenants file, as in development; it may ask for early priorities.
KEYLESS = Tenant(name="default", priority_ceiling=-1000)


class TenantStore:
    """The tenants now in force. If the file becomes invalid after start, this is logged and the tenants read before
    stay in force."""

    def __init__(self, path: Path | None) -> None:
        """Reads the file at `path`; with None no API key is asked for. Raises TenantFileError if the file is invalid,
        and OSError if it cannot be read."""
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
        """Returns the tenant of the API key in the header `Authorization: Bearer`. Raises InvalidRequest (401) if there
        is none or it is not valid."""
        if self._path is None:
            return KEYLESS
        value = headers.get(b"authorization")
        if value is None:
            raise InvalidRequest(
                "the request has no API key: send it in the header `Authorization: Bearer hmas-...`",
                outcome=Outcome.UNAUTHENTICATED,
            )
        scheme, _, key = value.partition(b" ")
        tenant = None
        if scheme.lower() == b"bearer" and len(key) <= MAX_KEY_BYTES:
            tenant = self._table.tenant_of(key.strip())
        if tenant is None:
            raise InvalidRequest(
                "the API key in the header `Authorization` is not valid: send `Bearer hmas-...` with a key in use",
                outcome=Outcome.UNAUTHENTICATED,
            )
        return tenant

    async def run(self, changed: Callable[[], None]) -> None:
        """Checks the file every POLL_S seconds until cancelled; calls `changed` after each successful reload."""
        while True:
            await asyncio.sleep(POLL_S)
            if self.poll():
                changed()

    def poll(self) -> bool:
        """Reads the file again if it changed; returns whether new tenants are in force."""
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
    """Reads a tenants file. Raises TenantFileError, which names the file, if it is invalid, not UTF-8 or larger than
    MAX_FILE_BYTES, and OSError if it cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise TenantFileError(
            f"tenants file {path}: it is larger than {MAX_FILE_BYTES} bytes, the most a tenants file may be"
        )
    try:
        return parse_tenants(data.decode())
    except UnicodeDecodeError:
        raise TenantFileError(f"tenants file {path}: it is not UTF-8 text; save it as UTF-8") from None
    except TenantFileError as error:
        raise TenantFileError(f"tenants file {path}: {error}") from None
