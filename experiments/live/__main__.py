"""`python -m experiments.live` starts the mesh with each perception in turn, sends it typed prompts without SLOs beyond
what its engines can serve, and writes docs/results/live-cognition.md."""

import argparse
import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from experiments.live.measure import Setup, measure
from experiments.live.page import write_page
from hmas.mesh.compare.cli import interruptible

OUT = Path("docs/results")


def main(argv: list[str] | None = None) -> int:
    default = Setup()
    parser = argparse.ArgumentParser(prog="python -m experiments.live", description=__doc__)
    parser.add_argument("--rate", type=float, default=default.rate_rps, help="mean requests per second")
    parser.add_argument("--seconds", type=float, default=default.scored_s, help="scored seconds of each run")
    parser.add_argument("--seeds", type=int, default=len(default.seeds), help="number of seeds, from 1 on")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page and its figures")
    args = parser.parse_args(argv)
    setup = Setup(rate_rps=args.rate, scored_s=args.seconds, seeds=tuple(range(1, args.seeds + 1)))
    console = Console(width=120)

    async def run() -> None:
        async with interruptible():
            with tempfile.TemporaryDirectory(prefix="hmas-live-") as folder:
                found = await measure(setup, Path(folder), lambda line: console.print(line, highlight=False))
        for path in write_page(found, args.out):
            console.print(f"wrote {path}")

    try:
        asyncio.run(run())
    except asyncio.CancelledError:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
