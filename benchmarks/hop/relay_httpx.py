"""A minimal relay of chat completions, FastAPI with httpx as its client, for comparison with the mesh."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

UPSTREAM = os.environ["UPSTREAM"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=1000)
    async with httpx.AsyncClient(base_url=UPSTREAM, timeout=60, limits=limits) as app.state.client:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/v1/chat/completions")
async def relay(request: Request) -> Response:
    body = await request.body()
    client: httpx.AsyncClient = request.app.state.client
    upstream = client.build_request("POST", "/v1/chat/completions", content=body)
    answer = await client.send(upstream, stream=True)
    kind = answer.headers.get("content-type", "")
    if "event-stream" not in kind:
        return Response(await answer.aread(), answer.status_code, media_type=kind)
    return StreamingResponse(answer.aiter_raw(), answer.status_code, media_type=kind)
