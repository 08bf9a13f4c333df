"""The address of an engine, and the beginnings of the requests that a gateway may send there."""

import re
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from hmas.contracts.registry import API_PATHS
from hmas.laws.hosts import can_be_resolved

_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_PREFIX = re.compile(r"[A-Za-z0-9._~/-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineTarget:
    """Where an engine listens. `prefix` is the path before /v1."""

    scheme: str
    host: str
    port: int
    prefix: str

    @staticmethod
    def of(url: str) -> "EngineTarget":
        """Returns the target of a URL. Raises ValueError if the URL is not http://HOST[:PORT][/PREFIX] or its like with
        HTTPS."""
        parts = urlsplit(url)
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        host = parts.hostname or ""
        usable = parts.scheme in ("http", "https") and _HOST.fullmatch(host) and can_be_resolved(host)
        if not usable or not _PREFIX.fullmatch(prefix) or ".." in prefix:
            raise ValueError(f"engine URL {url!r} is unusable: give http://HOST:PORT or https://HOST[:PORT]")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return EngineTarget(scheme=parts.scheme, host=host, port=port, prefix=prefix)

    @property
    def origin(self) -> str:
        """The target as scheme://host:port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"

    @property
    def address(self) -> str:
        """The target as ip:port, the form in which a proxy is told of it. Raises ValueError if the target has a name or
        a prefix, of which a proxy could not be told."""
        try:
            address = ip_address(self.host)
        except ValueError:
            raise ValueError(f"an endpoint picker needs the engine's address, not its name {self.host}") from None
        if self.prefix:
            raise ValueError(f"an endpoint picker cannot add the prefix {self.prefix} of the engine's URL")
        return f"[{address}]:{self.port}" if address.version == 6 else f"{address}:{self.port}"

    @property
    def loopback(self) -> bool:
        """Whether the target can only be reached from its own host."""
        try:
            address = ip_address(self.host)
        except ValueError:
            return self.host == "localhost" or self.host.endswith(".localhost")
        return address.is_loopback or address.is_unspecified

    def tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.scheme == "https" else None

    def heads(self, api_key: str) -> dict[str, bytes]:
        """Returns, for each path that may be requested, the head of the request up to the value of its last header,
        `Content-Length`. Raises ValueError if the key cannot be sent in a header."""
        if not api_key.isascii() or not (api_key + " ").isprintable():
            raise ValueError("the engine's API key has characters that no HTTP header may have")
        common = f"Host: {self.origin.partition('://')[2]}\r\nUser-Agent: hmas\r\nAccept-Encoding: identity\r\n"
        if api_key:
            common += f"Authorization: Bearer {api_key}\r\n"
        common += "Content-Type: application/json\r\nContent-Length: "
        return {
            path: f"POST {self.prefix}{path} HTTP/1.1\r\n{common}".encode() for path in API_PATHS
        }  # nothing else is ever requested of an engine
