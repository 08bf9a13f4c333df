"""The event loop of our processes: uvloop, or asyncio's own on Windows, for which there is no uvloop."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Returned = TypeVar("Returned")


def run_loop(body: Coroutine[Any, Any, Returned]) -> Returned:
    """Runs a coroutine to its end in a new event loop and returns its result. Raises what it raises."""
    if sys.platform == "win32":
        return asyncio.run(body)
    import uvloop

    return uvloop.run(body)
