"""HEAD for applications whose routes know GET alone, as FastAPI's do."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Hands HEAD to an application as GET, so that the answer has the same status and headers (RFC 9110, HEAD), and
    ends the answer with them: the application of an endless one then hears that its client is gone."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False

        async def send_head(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                await send(message)
            elif not ended:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        await self._app({**scope, "method": "GET"}, receive, send_head)
