"""What studies that run a mesh in real time have in common."""

import asyncio
import json
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from hmas.mesh.compare.cli import interruptible

M = TypeVar("M")


def in_real_time(measured: Callable[[Path], Awaitable[M]]) -> M:
    """Returns what `measured` does, which gets a folder for the time being. Raises KeyboardInterrupt if it is told to
    stop."""

    async def run() -> M:
        async with interruptible():
            with tempfile.TemporaryDirectory(prefix="hmas-live-") as folder:
                return await measured(Path(folder))

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def written(path: Path) -> Any:
    """Returns the figures that a study has written."""
    return json.loads(path.read_text(encoding="utf-8"))
