"""A minimal relay of chat completions, FastAPI with aiohttp's client, for comparison with the mesh."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

UPSTREAM = os.environ["UPSTREAM"]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as app.state.client:
        yield


app = FastAPI(lifespan=lifespan)


async def _chunks(answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    async for chunk in answer.content.iter_any():
        yield chunk
    answer.release()


@app.post("/v1/chat/completions")
async def relay(request: Request) -> Response:
    client: aiohttp.ClientSession = request.app.state.client
    answer = await client.post(f"{UPSTREAM}/v1/chat/completions", data=await request.body())
    if "event-stream" not in answer.content_type:
        return Response(await answer.read(), answer.status, media_type=answer.content_type)
    return StreamingResponse(_chunks(answer), answer.status, media_type=answer.content_type)
