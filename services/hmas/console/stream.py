"""The live stream of one page to one browser, as server-sent events.

A browser has no queue. Each frame is the difference from the last one that its socket took, so that a slow browser gets
fewer and larger steps, and one that reads nothing costs a view and a socket's buffer until it is let go.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import orjson
import structlog
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from hmas.console.pages import PERIOD_S, PERIODS_S, framed
from hmas.console.patch import diff
from hmas.console.state import ConsoleState

log = structlog.get_logger()
MAX_BROWSERS = 64
UNREAD_S = 30.0  # a browser that takes no frame for this long is disconnected
ALIVE_S = 1.0  # a frame comes at least so often, so that a browser sees that the console lives
MAX_CHOICE = 300  # characters


class PageFeed:
    """Makes each view, and each difference between two views, once for all browsers that look at a page. `clock`: Unix
    time in s that never runs backwards."""

    def __init__(self, state: ConsoleState, clock: Callable[[], float]) -> None:
        self._state = state
        self._clock = clock
        self._views: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {}
        self._patches: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {}

    def view(self, page: str, choice: str) -> tuple[float, dict[str, Any]]:
        """Returns the newest view of a page, at most half its period old, and when it was made."""
        now_s, period_s = self._clock(), PERIODS_S.get(page, PERIOD_S)
        made = self._views.get((page, choice))
        if made is not None and now_s - made[0] < period_s / 2:
            return made
        self._views = {key: kept for key, kept in self._views.items() if now_s - kept[0] < 2 * PERIOD_S}
        self._views[page, choice] = now_s, framed(page, self._state, now_s, choice)
        return self._views[page, choice]

    def patch(self, page: str, choice: str, last: dict[str, Any], view: dict[str, Any]) -> dict[str, Any]:
        """Returns the difference of two views of a page. Browsers that keep up ask for the same one."""
        known = self._patches.get((page, choice))
        if known is not None and known[0] is last and known[1] is view:
            return known[2]
        found = diff(last, view)
        self._patches = {key: kept for key, kept in self._patches.items() if key in self._views}
        self._patches[page, choice] = last, view, found
        return found

    def watched(self, page: str) -> list[str]:
        """Returns the choices of a page at which browsers look now."""
        now_s = self._clock()
        return [choice for (of, choice), (made_s, _) in self._views.items()
                if of == page and now_s - made_s < 2 * PERIOD_S]  # fmt: skip


class BrowserStreams:
    """Serves `MAX_BROWSERS` streams at a time."""

    def __init__(self, feed: PageFeed) -> None:
        self._feed = feed
        self.open = 0

    async def serve(self, page: str, choice: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Streams a page until its browser leaves, or reads nothing for `UNREAD_S`."""
        if self.open >= MAX_BROWSERS:
            await PlainTextResponse("too many browsers watch: close one\n", 503)(scope, receive, send)
            return
        self.open += 1
        left = asyncio.ensure_future(_left(receive))
        sent = asyncio.ensure_future(self._send(page, choice[:MAX_CHOICE], send))
        try:
            await asyncio.wait([left, sent], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.open -= 1
            for task in (left, sent):
                task.cancel()
            _, ended = await asyncio.gather(left, sent, return_exceptions=True)
        if not isinstance(ended, TimeoutError | asyncio.CancelledError):
            log.warning("stream_failed", page=page, exc_info=ended)

    async def _send(self, page: str, choice: str, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        last: dict[str, Any] = {}
        sent_s = float("-inf")
        while True:
            made_s, view = self._feed.view(page, choice)
            patch = self._feed.patch(page, choice, last, view)
            if patch or made_s - sent_s >= ALIVE_S:
                data = orjson.dumps({"now_s": round(made_s, 2), "patch": patch})
                async with asyncio.timeout(UNREAD_S):
                    await send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})
                last, sent_s = view, made_s
            period_s = PERIODS_S.get(page, PERIOD_S)  # all browsers look at the same instants, and share the work
            await asyncio.sleep(period_s - asyncio.get_running_loop().time() % period_s)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
