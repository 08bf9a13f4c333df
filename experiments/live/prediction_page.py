"""Writes the page that says how far predicted costs are from measured ones on a real mesh."""

import csv
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.live.settled import COSTS, SettledRequest, decode_floor, median_error
from experiments.pages.template import percent, render

AFTER = 50  # requests that have settled at a worker, from which on the goals hold
BUSY = 4  # load average above which the machine's own delays are a part of what is measured
GOALS = {"decode": 0.10, "prefill": 0.20}  # at most, of the median |log(predicted / measured)|
STAGES = {"0": (0, 1), "1 to 9": (1, 10), f"10 to {AFTER - 1}": (10, AFTER), f"{AFTER} or more": (AFTER, None)}
Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRun:
    """One run on a mesh that had just started: `share` of the `full_rps` requests/s that its engines serve while they
    are full. `answers` are the shares of the costs by the model that predicted them, `by_model` the errors that the
    prediction service tells of each model ("model cost"), also of one that stood by, `commit` is whose code ran,
    `unfinished` counts the requests
    that did not finish by the error that they got, `load` is the machine's mean load (1 min) when the run began, and
    `reasons` say why the run is invalid."""

    engine: str
    share: float
    seed: int
    full_rps: float
    sent: int
    answers: dict[str, float]
    by_model: dict[str, float]
    commit: str
    unfinished: dict[str, int]
    load: float
    reasons: tuple[str, ...]
    requests: list[SettledRequest]


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionResults:
    """All runs, and what each engine is, by its name."""

    engines: dict[str, str]
    runs: list[PredictionRun] = field(default_factory=list)

    def only_measured(self) -> "PredictionResults":
        """Returns the results without engines that no run is of, because it was interrupted before."""
        measured = {run.engine for run in self.runs}
        return replace(self, engines={name: what for name, what in self.engines.items() if name in measured})

    def document(self) -> dict[str, Any]:
        """Returns the runs without their requests, with the errors of each and of each engine's together."""
        runs = [
            {key: value for key, value in asdict(run).items() if key != "requests"} | {"errors": errors(run.requests)}
            for run in self.runs
        ]
        by_engine = {
            name: [r for run in self.runs if run.engine == name for r in run.requests] for name in self.engines
        }
        pooled = {name: errors(requests) for name, requests in by_engine.items()}
        return {"engines": self.engines, "pooled": pooled, "runs": runs}


def errors(requests: Sequence[SettledRequest]) -> dict[str, Any]:
    """Returns the number of requests in each of `STAGES`, the median error of each cost in each, and the floor of that
    of decode in the last stage; None without a request."""
    counts = [sum(low <= r.settled and (high is None or r.settled < high) for r in requests)
              for low, high in STAGES.values()]  # fmt: skip
    medians = {cost: [median_error(requests, cost, *stage) for stage in STAGES.values()] for cost in COSTS}
    return {"requests": counts, **medians, "decode_floor": decode_floor(requests, AFTER)}


def after(errors_: Document, cost: str) -> float | None:
    """Returns the median error of a cost after `AFTER` settled requests."""
    return errors_[cost][-1]  # type: ignore[no-any-return]


def write_page(found: PredictionResults, out: Path) -> list[Path]:
    """Writes `live-prediction.md`, `.json`, and `.csv`, whose rows are requests, into `out`; figures of engines that
    were not measured now stay as they are there. Returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    page, facts, rows = (out / f"live-prediction.{kind}" for kind in ("md", "json", "csv"))
    document = found.document()
    if facts.exists():
        before = json.loads(facts.read_text())
        document |= {name: before[name] | document[name] for name in ("engines", "pooled")}
        document["runs"] = [run for run in before["runs"] if run["engine"] not in found.engines] + document["runs"]
    lines = [line for line in _lines(rows) if line[0] not in found.engines]
    for run in found.runs:
        for request in run.requests:
            told = (f"{v:.5g}" if isinstance(v, float) else str(v) for v in asdict(request).values())
            lines.append([run.engine, f"{run.share:g}", str(run.seed), *told])
    facts.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    with rows.open("w", newline="", encoding="utf-8") as file:
        header = ("engine", "share", "seed", *SettledRequest.__dataclass_fields__)
        csv.writer(file, lineterminator="\n").writerows([header, *lines])
    page.write_text(page_of(json.loads(facts.read_text())), encoding="utf-8")
    return [page, facts, rows]


def _lines(rows: Path) -> list[list[str]]:
    """Returns the lines of a former file of requests, without its header; none if there is no such file."""
    if not rows.exists():
        return []
    with rows.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))[1:]


def page_of(document: Document) -> str:
    engines, runs, pooled = document["engines"], document["runs"], document["pooled"]
    return render(
        Path(__file__).with_name("prediction.md.j2"),
        engines=engines,
        seeds={name: sorted({run["seed"] for run in runs if run["engine"] == name}) for name in engines},
        shares=sorted({run["share"] for run in runs}),
        full={name: f"{next(r['full_rps'] for r in runs if r['engine'] == name):.1f}" for name in engines},
        machine={name: _machine([run["load"] for run in runs if run["engine"] == name]) for name in engines},
        unfinished={name: _unfinished([run for run in runs if run["engine"] == name]) for name in engines},
        after=AFTER,
        goals=[_goal(name, cost, pooled, runs) for name in engines for cost in GOALS],
        verdict=verdict(pooled),
        stand_ins=[told for name in engines if (told := _stand_in(name, runs))],
        commits={name: ", ".join(sorted({r.get("commit", "earlier code") for r in runs if r["engine"] == name}))
                 for name in engines},
        curves=[(name, label, pooled[name]["requests"][n], *(_number(pooled[name][cost][n]) for cost in GOALS))
                for name in engines for n, label in enumerate(STAGES)],
        rows=[_row(name, share, runs) for name in engines for share in sorted({r["share"] for r in runs})],
        invalid=[f"{r['engine']} at {r['share']:g}, seed {r['seed']}: {'; '.join(r['reasons'])}"
                 for r in runs if r["reasons"]],
    )  # fmt: skip


def verdict(pooled: Document) -> str:
    """Returns the sentence that says which of the goals are met, and which are missed by how much."""
    met, missed = [], []
    for name, errors_ in pooled.items():
        for cost, goal in GOALS.items():
            value = after(errors_, cost)
            if value is None:
                missed.append(f"{cost} on {name}, of which nothing was measured")
            elif value > goal:
                floor = f"; its floor, below, is {_number(errors_['decode_floor'])}" if cost == "decode" else ""
                missed.append(f"{cost} on {name} ({value:.3f}, {value / goal:.1f} times the goal{floor})")
            else:
                met.append(f"{cost} on {name}")
    said = [f"The goals are met for {', '.join(met)}." if met else "No goal is met."]
    return " ".join([*said, *([f"Missed are:\n\n{chr(10).join(f'- {each}' for each in missed)}"] if missed else [])])


def _stand_in(name: str, runs: Sequence[Document]) -> str:
    """Returns how the errors of CatBoost and of the model that would stand in for it compare over an engine's runs, by
    what the prediction service tells; empty where it did not tell of both."""
    own = [run["by_model"] for run in runs if run["engine"] == name and run.get("by_model") and not run["reasons"]]
    told = []
    for cost, words in (("ttft", "prefill"), ("tpot", "time per output token")):
        models = sorted({key.split()[0] for errors_ in own for key in errors_ if key.endswith(f" {cost}")})
        whole = [errors_ for errors_ in own if all(f"{m} {cost}" in errors_ for m in models)]
        means = {m: fmean(errors_[f"{m} {cost}"] for errors_ in whole) for m in models} if whole else {}
        if "catboost" in means and len(means) > 1:
            ours = means.pop("catboost")
            others = " and ".join(f"{value:.3f} of the {model} model" for model, value in means.items())
            held = "no worse" if ours <= min(means.values()) else "**worse**"
            told.append(f"{words} {ours:.3f} beside {others} ({held})")
    return f"{name}: {', '.join(told)}." if told else ""


def _goal(name: str, cost: str, pooled: Document, runs: Sequence[Document]) -> tuple[str, ...]:
    """Returns a row: the engine, the cost, the goal, the median error over all runs, and the least and the most of
    single runs."""
    value = after(pooled[name], cost)
    single = [each for r in runs if r["engine"] == name and (each := after(r["errors"], cost)) is not None]
    spread = f"{min(single):.3f} - {max(single):.3f}" if single else "-"
    held = "yes" if value is not None and value <= GOALS[cost] else "no"
    return name, cost, f"{GOALS[cost]:.2f}", _number(value), spread, held


def _machine(loads: Sequence[float]) -> str:
    """Returns the load averages of the machine when an engine's runs began, and what they mean for its figures."""
    told = f"The load average was {min(loads):.1f} to {max(loads):.1f} when its runs began"
    if max(loads) <= BUSY:
        return f"{told}."
    return f"{told}, above {BUSY}: what an engine measures is then in part how long other programs kept it waiting."


def _unfinished(runs: Sequence[Document]) -> str:
    """Returns what the requests got that did not finish, most frequent first."""
    counts: Counter[str] = sum((Counter(run["unfinished"]) for run in runs), Counter())
    return ", ".join(f"{count} × {error}" for error, count in counts.most_common()) or "none"


def _row(name: str, share: float, runs: Sequence[Document]) -> tuple[str, ...]:
    own = [r for r in runs if r["engine"] == name and r["share"] == share]
    models = sorted({model for r in own for model in r["answers"]})
    answers = ", ".join(f"{model} {percent(fmean(r['answers'].get(model, 0.0) for r in own))}" for model in models)
    medians = [", ".join(map(_number, of)) for of in (
        [after(r["errors"], "decode") for r in own], [r["errors"]["decode_floor"] for r in own],
        [after(r["errors"], "prefill") for r in own],
    )]  # fmt: skip
    judged = sum(r["errors"]["requests"][-1] for r in own)
    load = f"{min(r['load'] for r in own):.1f} - {max(r['load'] for r in own):.1f}"
    return name, f"{share:g}", f"{judged} of {sum(r['sent'] for r in own)}", *medians, answers, load


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
