"""The event loop of our processes: uvloop, or asyncio's own on Windows, for which there is no uvloop."""

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def run_loop(body: Coroutine[Any, Any, Result]) -> Result:
    """Runs a coroutine to its end in a new event loop and returns its result. Raises what it raises."""
    if sys.platform == "win32":
        return asyncio.run(body)
    import uvloop

    return uvloop.run(body)
