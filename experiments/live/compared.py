"""What `make run` and `make run-compare` have measured, seed by seed, and what was asked of it."""

from collections.abc import Collection, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from experiments.live.command import written
from experiments.pages.goal import Goal
from experiments.pages.template import percent
from experiments.study import Options, Study

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


def page_of(run: Mapping[str, Any], capacity: Mapping[str, Any]) -> dict[str, object]:
    pairs = list(pairs_of(run, capacity))
    pages = {RUN: run, OVERLOADED: capacity[OVERLOADED], LIGHT: capacity[LIGHT]}
    judged = goals(pairs, [name for name, page in pages.items() if not _valid(page)])
    return {
        "capacity": capacity["capacity_rps"], "run_s": run["window_s"], "capacity_s": capacity["window_s"],
        "goals": [goal.line for goal in judged], "rows": [_row(pair) for pair in pairs],
        "invalid": [
            f"{name}, {side}: {'; '.join(page[side]['invalid_reasons'])}"
            for name, page in pages.items()
            for side in ("direct", "mesh")
            if not page[side]["valid"]
        ],
    }  # fmt: skip


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


def document_of(options: Options) -> dict[str, Any]:
    """Returns what `make run` and `make run-compare` have measured: of the `files`, or what lies in `options.out`."""
    if not options.files:
        return dict(written(options.out / "compared.json"))
    run, capacity = map(written, options.files)
    return {"run": run, "capacity": capacity}


STUDY: Study[None, dict[str, Any]] = Study(
    name="compared",
    about="Tells what `make run ARGS='--seeds 3 --json out/run.json'` and `make run-compare` have measured: --files "
    "out/run.json out/run-compare.json.",
    template=Path(__file__).with_name("compared.md.j2"),
    takes=("out", "files"),
    rows=lambda options, found: [document_of(options)],
    values=lambda rows, options, found: page_of(**rows[0]),
    also=lambda rows, options, found: {"compared.json": rows[0]},
)
