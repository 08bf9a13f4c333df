"""Finds the tenant of a request by its API key. The tenants file is read again when it changes."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import structlog

from hmas.contracts.gateway import ClassWeight, TenantLimits
from hmas.contracts.outcome import Outcome
from hmas.gateway.errors import InvalidRequest
from hmas.gateway.tenants.file import MAX_KEY_BYTES, TenantFileError, TenantKey, TenantTable, parse_tenants
from hmas.gateway.tenants.terms import Tenant

log = structlog.get_logger()
POLL_S = 0.5
MAX_FILE_BYTES = 16 * 2**20

# The tenant of every request if there is no tenants file, as in development; it may ask for early priorities.
KEYLESS = Tenant(name="default", priority_ceiling=-1000)


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request: the tenant, and the id of the API key, which is empty if none is asked for."""

    tenant: Tenant
    key: str = ""


KEYLESS_CALLER = Caller(KEYLESS)


class TenantStore:
    """The tenants now in force. If the file becomes invalid after start, or loses all its API keys, this is logged and
    the tenants read before stay in force."""

    def __init__(self, path: Path | None, clock: Callable[[], float] = time.time) -> None:
        """Reads the file at `path`; with None no API key is asked for. `clock` returns Unix seconds. Raises
        TenantFileError if the file is invalid, and OSError if it cannot be read."""
        self._path, self._clock = path, clock
        self._keys: dict[str, TenantKey] = {}  # those of the table, by id
        self._stamp: tuple[int, int, int] | None = None
        self._table = TenantTable()
        if path is None:
            log.warning("keyless", effect="anyone who reaches this port may use it; set HMAS_TENANTS_FILE")
            return
        self._stamp = _stamp(path)
        self._use(load_tenants(path))

    def _use(self, table: TenantTable) -> None:
        self._table = table
        self._keys = {key.id: key for key in table.keys.values()}
        log.info("tenants_loaded", tenants=len(table.tenants), keys=len(table.keys))

    def limits(self) -> tuple[TenantLimits, ...]:
        return self._table.limits()

    def classes(self) -> tuple[ClassWeight, ...]:
        return self._table.classes

    def cache_salt(self, tenant: Tenant) -> str:
        """Returns what keeps the tenant's prompts apart in the engines' prefix caches, so that no other tenant can tell
        by the time of an answer what it has sent; empty where there is but one tenant."""
        if len(self._table.tenants) < 2:
            return ""
        return blake2b(tenant.name.encode(), digest_size=8, person=b"cache salt").hexdigest()

    def authenticate(self, headers: Mapping[bytes, bytes]) -> Caller:
        """Returns who holds the API key in the header `Authorization: Bearer` or, without that one, in `x-api-key`.
        Raises InvalidRequest (401) if there is none or it is not valid."""
        if self._path is None:
            return KEYLESS_CALLER
        scheme, _, key = headers.get(b"authorization", b"").partition(b" ")
        name = "Authorization"
        if scheme.lower() != b"bearer" and b"x-api-key" in headers:
            name, scheme, key = "x-api-key", b"bearer", headers[b"x-api-key"]
        elif not scheme:
            raise InvalidRequest(
                "the request has no API key: send it in the header `Authorization: Bearer hmas-...` or `x-api-key`",
                outcome=Outcome.UNAUTHENTICATED,
            )
        found = None
        if scheme.lower() == b"bearer" and len(key) <= MAX_KEY_BYTES:
            found = self._table.find(key.strip())
        if found is None:
            raise InvalidRequest(
                f"the API key in the header `{name}` is not valid: send a key in use, as `Authorization: Bearer "
                "hmas-...` or as `x-api-key`",
                outcome=Outcome.UNAUTHENTICATED,
            )
        if found.expires_s <= self._clock():
            raise InvalidRequest(
                f"the API key {found.id} has expired: send another one", outcome=Outcome.UNAUTHENTICATED
            )
        return Caller(self._table.tenants[found.tenant], found.id)

    def holds(self, key: str) -> bool:
        """Returns whether the API key with this id is valid now."""
        found = self._keys.get(key)
        return self._path is None or (found is not None and found.expires_s > self._clock())

    async def run(self, changed: Callable[[], None], checked: Callable[[], None]) -> None:
        """Checks the file every POLL_S seconds until cancelled; calls `changed` after each successful reload, and
        `checked` after each check."""
        while True:
            await asyncio.sleep(POLL_S)
            if await asyncio.to_thread(self.poll):  # a large file takes seconds to parse
                changed()
            checked()

    def poll(self) -> bool:
        """Reads the file again if it changed; returns whether new tenants are in force."""
        if self._path is None:
            return False
        stamp = _stamp(self._path)
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            table = load_tenants(self._path)
        except (TenantFileError, OSError) as error:
            return self._reject(str(error))
        except Exception as error:  # whatever the file does to its readers, the gateway goes on
            log.exception("tenants_unreadable")
            return self._reject(repr(error))
        if self._table.keys and not table.keys:
            return self._reject("it holds no API key; revoke the last one with `hmas keys revoke`, or restart")
        self._use(table)
        return True

    def _reject(self, error: str) -> bool:
        log.error("tenants_rejected", error=error, effect="the tenants loaded before stay in force")
        return False


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
