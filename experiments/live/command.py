"""What the commands that run a mesh in real time have in common."""

import argparse
import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from rich.console import Console

from hmas.mesh.compare.cli import interruptible

OUT = Path("docs/results")
Say = Callable[[str], None]


def parsed(
    argv: list[str] | None, prog: str, description: str | None, *, rate_rps: float, scored_s: float, seeds: int
) -> argparse.Namespace:
    """Reads `rate`, `seconds`, `seeds`, `pages_only` and `out` from the command line; the others are their defaults."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--rate", type=float, default=rate_rps, help="mean requests per second")
    parser.add_argument("--seconds", type=float, default=scored_s, help="scored seconds of each run")
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds, from 1 on")
    parser.add_argument("--pages-only", action="store_true", help="run nothing; write the page from its figures")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page and its figures")
    return parser.parse_args(argv)


def carried_out(measured: Callable[[Path, Say], Awaitable[Iterable[Path]]]) -> int:
    """Runs `measured`, which gets a folder for the time being and a place for its lines and returns the files that it
    wrote. Returns the exit status."""
    console = Console(width=120)

    async def run() -> None:
        async with interruptible():
            with tempfile.TemporaryDirectory(prefix="hmas-live-") as folder:
                written = await measured(Path(folder), lambda line: console.print(line, highlight=False))
        for path in written:
            console.print(f"wrote {path}")

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return 130
    return 0
