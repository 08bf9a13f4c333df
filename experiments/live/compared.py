"""`python -m experiments.live.compared --run out/run.json --capacity out/run-compare.json` writes a page about what
`make run ARGS='--seeds 3 --json out/run.json'` and `make run-compare` have measured."""

import argparse
import json
import sys
from collections.abc import Collection, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from experiments.live.command import OUT
from experiments.report.goal import Goal
from experiments.report.template import percent, render

GOODPUT = 0.96  # of the mesh under `make run`, before short requests went first
TTFT_S = 1.3  # half of the median then
OVERLOADED, LIGHT = "overload", "light"
RUN = "make run"


class Pair(NamedTuple):
    """The figures of both sides, by the names of `hmas.laws.scoring.Score`, for one seed at one rate; None for a time
    of which there is none, because no request finished."""

    setting: str
    rate_rps: float
    seed: int
    direct: Mapping[str, Any]
    mesh: Mapping[str, Any]


def pairs_of(run: Mapping[str, Any], capacity: Mapping[str, Any]) -> Iterator[Pair]:
    settings = ((RUN, run, run["seeds"]), *((name, capacity[name], capacity["seeds"]) for name in (OVERLOADED, LIGHT)))
    for name, page, seeds in settings:
        for seed, direct, mesh in zip(seeds, page["direct"]["runs"], page["mesh"]["runs"], strict=True):
            yield Pair(name, page["rate_rps"], seed, direct, mesh)


def goals(pairs: list[Pair], invalid: Collection[str] = ()) -> list[Goal]:
    """Returns what is asked of each seed, and in how many it came. Settings with an `invalid` run prove nothing: what
    holds without them is not judged."""
    run = [pair for pair in pairs if pair.setting == RUN]
    late = [pair for pair in pairs if pair.setting != LIGHT]

    def goal(words: str, met: list[bool]) -> Goal:
        whole = met and not invalid
        return Goal(words, f"in {sum(met)} of {len(met)} runs", False if not all(met) else True if whole else None)

    return [
        goal(f"{RUN}: goodput rate at least {100 * GOODPUT:g} %", [p.mesh["goodput_rate"] >= GOODPUT for p in run]),
        goal(f"{RUN}: median TTFT at most {TTFT_S:g} s", [(p.mesh["ttft_p50_s"] or inf) <= TTFT_S for p in run]),
        goal("goodput rate at least the engines' alone", [_more(p, "goodput_rate") for p in pairs]),
        goal("ESG at least the engines' alone, overloaded", [_more(p, "esg_rate") for p in late]),
    ]


def _more(pair: Pair, name: str) -> bool:
    return bool(pair.mesh[name] >= pair.direct[name])


def page_of(run: Mapping[str, Any], capacity: Mapping[str, Any]) -> str:
    pairs = list(pairs_of(run, capacity))
    pages = {RUN: run, OVERLOADED: capacity[OVERLOADED], LIGHT: capacity[LIGHT]}
    return render(
        Path(__file__).with_name("compared.md.j2"),
        capacity=capacity["capacity_rps"],
        run_s=run["window_s"],
        capacity_s=capacity["window_s"],
        goals=[goal.line for goal in goals(pairs, [name for name, page in pages.items() if not _valid(page)])],
        rows=[_row(pair) for pair in pairs],
        invalid=[
            f"{name}, {side}: {'; '.join(page[side]['invalid_reasons'])}"
            for name, page in pages.items()
            for side in ("direct", "mesh")
            if not page[side]["valid"]
        ],
    )


def _valid(page: Mapping[str, Any]) -> bool:
    return bool(page["direct"]["valid"] and page["mesh"]["valid"])


def _row(pair: Pair) -> tuple[str, ...]:
    sides = (pair.direct, pair.mesh)
    return (
        pair.setting,
        f"{pair.rate_rps:.2f}",
        str(pair.seed),
        *(percent(side["goodput_rate"]) for side in sides),
        *("-" if side["ttft_p50_s"] is None else f"{side['ttft_p50_s']:.2f}" for side in sides),
        *(f"{side['esg_rate']:.0f}" for side in sides),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m experiments.live.compared", description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="what `make run` has written with --json")
    parser.add_argument("--capacity", type=Path, required=True, help="what `make run-compare` has written")
    parser.add_argument("--out", type=Path, default=OUT, help="folder for the page and its figures")
    args = parser.parse_args(argv)
    run, capacity = (json.loads(file.read_text(encoding="utf-8")) for file in (args.run, args.capacity))
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "compared.json").write_text(json.dumps({"run": run, "capacity": capacity}, indent=1) + "\n")
    (args.out / "compared.md").write_text(page_of(run, capacity), encoding="utf-8")
    print(f"wrote {args.out / 'compared.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
