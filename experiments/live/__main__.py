"""`python -m experiments.live` starts the mesh with each perception in turn, sends it typed prompts without SLOs beyond
what its engines can serve, and writes docs/results/live-cognition.md."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path

from experiments.live.command import Say, carried_out, parsed
from experiments.live.measure import Setup, measure
from experiments.live.page import page_of, write_page


def main(argv: list[str] | None = None) -> int:
    default = Setup()
    args = parsed(
        argv, "python -m experiments.live", __doc__,
        rate_rps=default.rate_rps, scored_s=default.scored_s, seeds=len(default.seeds),
    )  # fmt: skip
    if args.pages_only:
        document = json.loads((args.out / "live-cognition.json").read_text(encoding="utf-8"))
        (args.out / "live-cognition.md").write_text(page_of(document), encoding="utf-8")
        return 0
    setup = Setup(rate_rps=args.rate, scored_s=args.seconds, seeds=tuple(range(1, args.seeds + 1)))

    async def measured(folder: Path, say: Say) -> Iterable[Path]:
        return write_page(await measure(setup, folder, say), args.out)

    return carried_out(measured)


if __name__ == "__main__":
    sys.exit(main())
