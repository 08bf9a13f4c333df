"""Watches Kubernetes EndpointSlices over the API server's HTTP interface, with the pod's own service account.

The mesh's own HTTP client serves: what is needed of the API is one list and one watch (docs/adr/0028).
"""

import asyncio
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
import structlog

from hmas.runtime.http1 import HttpPool, PoolConfig
from hmas.runtime.logs import LogRateLimit
from hmas.worker.discovery.dns import Found
from hmas.worker.discovery.endpoint_slices import EndpointSlices, ReadyEndpoint
from hmas.worker.discovery.source import KubernetesSource
from hmas.worker.settings import EngineSettings

log = structlog.get_logger()
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
MAX_PAGE_BYTES, MAX_LINE_BYTES = 32 * 2**20, 4 * 2**20
PAGE = 250  # EndpointSlices in one answer
LIST_S, WATCH_S, SLACK_S = 10.0, 240, 30.0
_MALFORMED = (ValueError, KeyError, TypeError, AttributeError)


class ApiFailed(Exception):
    """The API server cannot be reached or refuses; the text says why."""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """Where the API server is and who asks. The token is read at each request, because it is renewed in its file."""

    url: str
    token_file: Path
    ca_file: Path
    namespace: str

    @staticmethod
    def of_pod(url: str = "", account: Path = ACCOUNT) -> "ApiServer":
        """Returns the API server that a pod is told of, or the one at `url`. Raises OSError outside of a cluster."""
        host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not url and not host:
            raise OSError("HMAS_ENGINES names Kubernetes, but this is not a pod: KUBERNETES_SERVICE_HOST is not set")
        named = account / "namespace"
        return ApiServer(
            url=url or f"https://{f'[{host}]' if ':' in host else host}:{port}",
            token_file=account / "token",
            ca_file=account / "ca.crt",
            namespace=named.read_text().strip() if named.exists() else "default",
        )


class _Answer:
    """An answer of the API server: `line` gets each line of its body, the last one at its end. `ended` is set then."""

    def __init__(self, line: Callable[[bytes], None], max_bytes: int) -> None:
        self.status = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line, self._max_bytes, self._rest = line, max_bytes, b""

    def on_head(self, status: int) -> None:
        self.status = status

    def on_body(self, data: bytes) -> None:
        if self.ended.done():
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > self._max_bytes:
            self._fail(f"the API server sent more than {self._max_bytes} bytes in one line")
            return
        try:
            for line in filter(None, lines):
                self._line(line)
        except ApiFailed as error:
            self._fail(str(error))
        except _MALFORMED as error:
            self._fail(f"the API server's answer is malformed: {error!r}")

    def on_complete(self) -> None:
        self.on_body(b"\n")
        if not self.ended.done():
            self.ended.set_result(None)

    def on_failure(self, reason: str) -> None:
        self._fail(reason.replace("engine", "API server"))

    def _fail(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_exception(ApiFailed(reason))


class KubernetesEngines:
    """Lists the EndpointSlices of a source once, and watches them from there on. A watch that ends goes on where it
    was; the list is read anew only if the API server has forgotten that place. While it cannot be reached nothing
    changes.
    """

    def __init__(self, source: KubernetesSource, server: ApiServer, *, retry_s: float = 1.0) -> None:
        self._source, self._server, self._retry_s = source, server, retry_s
        self._slices = EndpointSlices(source.port)
        self._sparingly = LogRateLimit()
        url = urlsplit(server.url)
        tls = ssl.create_default_context(cafile=server.ca_file) if url.scheme == "https" else None
        self._pool = HttpPool(url.hostname or "", url.port or (443 if tls else 80), tls, PoolConfig(max_connections=2))
        self._host = url.netloc

    async def run(self, found: Found) -> None:
        told: tuple[ReadyEndpoint, ...] | None = None

        def tell() -> None:
            nonlocal told
            endpoints = self._slices.endpoints()
            if endpoints == told:
                return
            for each in endpoints:
                if each.fault and each not in (told or ()):
                    log.warning("engine_role_unusable", url=each.url, reason=each.fault, effect="it has no role")
            told = endpoints
            found(tuple(EngineSettings(url=each.url, role=each.role) for each in endpoints))

        try:
            while True:
                try:
                    if not self._slices.version:
                        await self._list()
                        tell()
                    await self._watch(tell)
                except (ApiFailed, OSError, *_MALFORMED) as error:
                    self._sparingly.warn("endpoint_slices_unreadable", reason=str(error), effect="nothing changes")
                    await asyncio.sleep(self._retry_s)
        finally:
            await self._pool.close()

    async def _list(self) -> None:
        items: list[dict[str, Any]] = []
        more = ""
        while True:
            pages: list[bytes] = []
            await self._ask(f"limit={PAGE}{more}", pages.append, LIST_S, MAX_PAGE_BYTES)
            page = orjson.loads(b"\n".join(pages))
            items += page["items"]
            following = page["metadata"].get("continue")
            if not following:
                self._slices.replace(items, page["metadata"]["resourceVersion"])
                return
            more = f"&continue={quote(following, safe='')}"

    async def _watch(self, tell: Callable[[], None]) -> None:
        def change(line: bytes) -> None:
            if not self._slices.apply(orjson.loads(line)):
                self._slices.version = ""
                raise ApiFailed("the API server has forgotten this place: the list is read anew")
            tell()

        version = quote(self._slices.version, safe="")
        query = f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}"
        await self._ask(query, change, WATCH_S + SLACK_S, MAX_LINE_BYTES)

    async def _ask(self, query: str, line: Callable[[bytes], None], limit_s: float, max_bytes: int) -> None:
        """Sends a GET request for the source's EndpointSlices; returns when its answer has ended. Raises ApiFailed, or
        OSError if the token cannot be read."""
        namespace = self._source.namespace or self._server.namespace
        path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
        token = self._server.token_file.read_text().strip() if self._server.token_file.exists() else ""
        head = (
            f"GET {path}?labelSelector={quote(self._source.selector, safe='')}&{query} HTTP/1.1\r\n"
            f"Host: {self._host}\r\nAccept: application/json\r\nUser-Agent: hmas\r\n"
            + (f"Authorization: Bearer {token}\r\n" if token else "")
            + "\r\n"
        )
        refused: list[bytes] = []
        answer = _Answer(lambda data: line(data) if answer.status == 200 else refused.append(data[:500]), max_bytes)
        exchange = self._pool.send(head.encode("latin-1"), b"", answer)
        try:
            async with asyncio.timeout(limit_s):
                await answer.ended
        except TimeoutError:
            raise ApiFailed(f"the API server did not end its answer within {limit_s:g} s") from None
        finally:
            exchange.abort()
        if answer.status == 410:  # what was asked for lies too far back
            self._slices.version = ""
        if answer.status != 200:
            hint = "; give the service account the right to list and watch endpointslices" * (answer.status == 403)
            said = refused[0].decode(errors="replace") if refused else ""
            raise ApiFailed(f"the API server answered {answer.status}: {said}{hint}")
