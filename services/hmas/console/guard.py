"""Who may ask the console for what: the names it answers to, the headers of each answer, and the two tokens."""

import hashlib
import hmac
import re
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPEN = frozenset({"/api/about", "/api/login", "/health"})  # they tell nothing of the mesh
ACTING = frozenset({"/api/pin", "/api/plan", "/api/whatif"})  # they ask for the admin's token themselves
MAX_BODY_BYTES = 4096
_HOST = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::[0-9]*)?")  # the name, without the port that may follow it
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HEADERS = (
    (b"content-security-policy",
     b"default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)  # fmt: skip


def cookie_of(token: str) -> tuple[str, str]:
    """Returns the name and the value of what a reader's browser keeps: it proves the token and does not tell it.

    Consoles on two ports of one host share a browser's cookies, so that each token has a name of its own.
    """
    proof = hmac.new(token.encode(), b"hmas console: reading", hashlib.sha256).hexdigest()
    return f"hmas_console_{proof[:8]}", proof[8:]


def bearer(headers: Mapping[bytes, bytes]) -> bytes:
    """Returns the token of the header Authorization; empty if there is none."""
    scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" else b""


def same(given: bytes, wanted: str) -> bool:
    """Tells whether a secret is the wanted one, in a time that does not depend on it; an empty one never is."""
    return bool(wanted) and hmac.compare_digest(given, wanted.encode())


class ConsoleGuard:
    """Refuses what the application behind it must not see, and adds the headers that keep a page to itself.

    A request must name a host of `names` or of the loopback, because a page of another site can point its own name at
    this machine and would then count as of the same origin. With a `token`, `/api` answers only those who gave it.
    """

    def __init__(self, app: ASGIApp, *, token: str, names: frozenset[str]) -> None:
        self._app = app
        self._token = token
        self._cookie = cookie_of(token)
        self._names = names | _LOOPBACK

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def sealed(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._app)(scope, receive, sealed)

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers = dict(scope["headers"])
        if not self._named(headers.get(b"host", b"")):
            return PlainTextResponse("this name is not the console's: HMAS_CONSOLE_NAMES has them\n", 421)
        if scope["method"] not in ("GET", "HEAD") and not _small(headers):
            return PlainTextResponse(f"a body of at most {MAX_BODY_BYTES} bytes, with its length\n", 413)
        path = scope["path"]
        if path.startswith("/api/") and path not in OPEN | ACTING and not self._may_read(headers):
            return PlainTextResponse("reading takes the token in HMAS_CONSOLE_TOKEN_FILE\n", 401)
        return None

    def _named(self, host: bytes) -> bool:
        found = _HOST.fullmatch(host.decode("latin-1").strip().lower())
        return found is not None and found[1] in self._names

    def _may_read(self, headers: Mapping[bytes, bytes]) -> bool:
        if not self._token or same(bearer(headers), self._token):
            return True
        name, proof = self._cookie
        try:
            cookie = SimpleCookie(headers.get(b"cookie", b"").decode("latin-1")).get(name)
        except CookieError:
            return False
        return cookie is not None and same(cookie.value.encode("latin-1", "replace"), proof)


def _small(headers: Mapping[bytes, bytes]) -> bool:
    length = headers.get(b"content-length", b"")
    return length.isdigit() and int(length) <= MAX_BODY_BYTES
