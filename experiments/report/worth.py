"""Writes the page about what cognition is worth, and what it costs that annotations come late."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import hmas.sim.times
from experiments import length_bounds
from experiments.pages.carried import merged, present_commit, told
from experiments.pages.paired import Paired, paired
from experiments.pages.template import percent
from experiments.study import Finished, Options, Study
from experiments.worth import (
    COGNITION,
    GOAL_CLOSED,
    GOAL_LOAD,
    Closing,
    CognitionRow,
    MaskedRow,
    batches_of_worth,
    by_setting,
    cells_of_worth,
    closings,
    knowledge,
    masking,
    plain,
    rows_of,
)
from hmas.engine.core.profile import builtin_profile
from hmas.perception.backends.model import ModelBackend
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.worker.agent.config import TagWaitConfig
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.experiment import Experiment, load_experiment
from hmas_lab.sim.sources import build
from hmas_lab.sim.systems import HMAS, read_by

GOAL_MASKED, OVERLOAD = 0.99, 1.1  # in λ*
FILE, LATE = Path(__file__).parents[1] / "worth.yaml", "masking.json"


def experiment_of(options: Options) -> Experiment:
    """Returns the experiment with the data, the seeds and the lengths that there are to be."""
    experiment = load_experiment(FILE).within(options.data)
    short = tuple(replace(w, duration_s=min(w.duration_s, options.seconds)) for w in experiment.workloads)
    return replace(experiment, workloads=short, seeds=tuple(options.numbers))


def found_of(options: Options, store: Finished) -> tuple[list[CognitionRow], list[MaskedRow]]:
    """Returns the rows of both files: those of settings that are finished, and the others of the page before, each with
    the commit whose code computed them."""
    experiment = experiment_of(options)
    found = [r for r in rows_of(experiment, store, present_commit())[0] if len(r.by_seed) == len(experiment.seeds)]
    known = [row for row in found if row.cognition in COGNITION]
    late = merged(masking(found), options.out / LATE, _masked_row, lambda row: (row.workload, row.load))
    return merged(known, options.out / "worth.json", _cognition_row, _place), late


def page_of(rows: Sequence[CognitionRow], options: Options, store: Finished) -> dict[str, object]:
    experiment, (_, late) = experiment_of(options), found_of(options, store)
    _, missing, cpu_s = rows_of(experiment, store, "")
    carried, closed = told(rows, present_commit()), closings(rows)

    def mark(named: dict[str, CognitionRow]) -> tuple[str, ...]:
        return (", ".join(sorted({row.commit for row in named.values()})),) if carried else ()

    return {
        "experiment": experiment, "seconds": sorted({spec.duration_s for spec in experiment.workloads}),
        "capacities": _capacities(experiment, store), "known": _known(experiment, store),
        "bounds": length_bounds.told(length_bounds.of_cell(store.get(cell)) for cell in cells_of_worth(experiment)),
        "NAMES": tuple(COGNITION),
        "settings": [(*_setting(key, named, closed), *mark(named)) for key, named in by_setting(rows).items()],
        "verdicts": [_verdict(c) for c in closed if c.load == GOAL_LOAD and not c.stated],
        "worthless": _worthless(closed), "against_rules": _against_rules(rows),
        "masked": [(*_masked(row), row.commit) if carried else _masked(row) for row in late],
        "MARK": ("commit",) if carried else (), "patience_ms": round(1000 * TagWaitConfig().patience_s),
        "masked_verdict": _masked_verdict(late), "missing": [] if carried else missing, "cpu_min": cpu_s / 60.0,
        "carried": carried, "times": _times(),
    }  # fmt: skip


def _times() -> str:
    """Returns of which models the simulator's times are, and how long they take, beside the models that ship."""
    told_of = json.loads((Path(hmas.sim.times.__file__).with_name(hmas.sim.times.FILE)).read_text(encoding="utf-8"))
    ships = [ModelBackend().version, CatBoostCostModel().version]
    others = [f"`{was}` (now `{now}`)" for was, now in zip(told_of["versions"], ships, strict=True) if was != now]
    text = "The models take the time that was measured of them: " + "; ".join(
        f"{name} {told_of[name][0][1]:.2f} ms for one prompt and {told_of[name][-1][1]:.1f} for {told_of[name][-1][0]}"
        for name in ("perception", "prediction")
    )
    earlier = f" They were measured of earlier models: {', '.join(others)}." if others else ""
    return f"{text}.{earlier}"


def _cognition_row(document: dict[str, Any]) -> CognitionRow:
    return CognitionRow(**document | {"by_seed": tuple(document["by_seed"])})


def _masked_row(document: dict[str, Any]) -> MaskedRow:
    return MaskedRow(**document | {"late_cost": Paired(**document["late_cost"])})


def _place(row: CognitionRow) -> tuple[object, ...]:
    return row.workload, row.load, row.stated, row.cognition


def _capacities(experiment: Experiment, store: Finished) -> list[tuple[str, str]]:
    """Returns each workload's name with its λ* in requests per second."""
    found = {}
    for spec in experiment.workloads:
        capacity = store.get(_run(experiment, experiment.workloads.index(spec)).capacity)
        found[spec.name] = f"{capacity['rate_rps']:.2f}" if capacity else "not measured"
    return list(found.items())


def _run(experiment: Experiment, place: int) -> Cell:
    return Cell(
        kind="run",
        profile=experiment.profile,
        engines=experiment.engines,
        workload=experiment.workloads[place],
        load=GOAL_LOAD,
        seed=experiment.seeds[0],
        system=HMAS,
        chunk_tokens=experiment.chunk_tokens,
    )


def _known(experiment: Experiment, store: Finished) -> list[tuple[object, ...]]:
    """Returns what perception knew of each workload's prompts at `GOAL_LOAD`, on the first seed."""
    rows: list[tuple[object, ...]] = []
    for place, spec in enumerate(experiment.workloads):
        cell = _run(experiment, place)
        capacity = store.get(cell.capacity)
        if spec.stated or capacity is None or store.get(cell) is None:
            continue
        workload = build(spec, GOAL_LOAD * capacity["rate_rps"], cell.seed, prompts=True)
        found = knowledge(read_by(HMAS, workload).fitting(builtin_profile(experiment.profile)))
        figures = (f"{found.bias:+.2f}", f"{found.sd:.2f}", percent(found.r2), percent(found.r2_in_type))
        rows.append((spec.name, _texts(workload.note), found.prompts, percent(found.accuracy), *figures))
    return rows


def _texts(note: str) -> str:
    share = next((part.split()[0] for part in note.split("; ") if "labelled prompts" in part), "")
    return f"{share} labelled, the rest our own" if share else "our own"


def _setting(
    key: tuple[str, float, bool], named: dict[str, CognitionRow], closed: Sequence[Closing]
) -> tuple[str, ...]:
    workload, load, stated = key
    found = next((c for c in closed if (c.workload, c.load, c.stated) == key), None)
    rates = (f"{named[name].goodput_rate:.3f}" if name in named else "not measured" for name in COGNITION)
    return workload, f"{load:g}", "stated" if stated else "tagged", *rates, *_closing(found)


def _closing(closing: Closing | None) -> tuple[str, str, str]:
    if closing is None:
        return ("not measured",) * 3
    return points(closing.distance), points(closing.gain), _share(closing)


def _share(closing: Closing) -> str:
    if closing.share is not None:
        return f"{closing.share:.0%}"
    return "noise" if closing.distance.noise else "the prior is ahead"


def points(difference: Paired) -> str:
    """Returns a difference of goodput rates in points, with half its interval."""
    return f"{100 * difference.mean:+.1f} ± {100 * difference.half:.1f}"


def _verdict(closing: Closing) -> str:
    what = f"{closing.workload} at {closing.load:g} λ*, SLOs from the tagged type"
    if closing.share is None:
        return f"- {what}: {_worth_nothing(closing)}.\n"
    word = "met" if closing.share >= GOAL_CLOSED else "**not met**"
    return (
        f"- {what}: the shipped models close {closing.share:.0%} of the distance from the prior to perfect knowledge "
        f"({points(closing.gain)} of {points(closing.distance)} points; goal ≥ {GOAL_CLOSED:.0%}: {word}).\n"
    )


def _worth_nothing(closing: Closing) -> str:
    if closing.distance.noise:
        return (
            "cognition is worth nothing here, because even perfect knowledge is not ahead of the prior by more than "
            f"chance ({points(closing.distance)} points)"
        )
    return f"the prior is ahead of perfect knowledge ({points(closing.distance)} points)"


def _worthless(closed: Sequence[Closing]) -> str:
    """Returns a sentence that names the settings where cognition is worth nothing."""
    names = [f"{c.workload} at {c.load:g} λ* ({'stated' if c.stated else 'tagged'})" for c in closed if c.share is None]
    if not names:
        return "There is no setting in which perfect knowledge is not ahead of the prior by more than chance."
    count = f"{len(names)} of {len(closed)} settings"
    return f"Cognition is worth nothing, within what the seeds can tell, in {count}:\n\n{_items(names)}"


def _against_rules(rows: Sequence[CognitionRow]) -> str:
    """Returns what the trained models add to patterns and a line, wherever that is more than chance."""
    ahead: list[str] = []
    behind: list[str] = []
    both = 0
    for (workload, load, stated), named in by_setting(rows).items():
        if "shipped" not in named or "rules" not in named:
            continue
        both += 1
        gain = paired(named["shipped"].by_seed, named["rules"].by_seed)
        if not gain.noise:
            place = f"{workload} at {load:g} λ* ({'stated' if stated else 'tagged'}, {points(gain)} points)"
            (ahead if gain.mean > 0.0 else behind).append(place)
    if not both:
        return "What the trained models add to the rules: not measured."
    return (
        f"Against the rules the trained models gain more than chance in {_listed(ahead, both)}\n\nThey lose more than "
        f"chance in {_listed(behind, both)}"
    )


def _listed(places: Sequence[str], total: int) -> str:
    return f"{len(places)} of {total} settings:\n\n{_items(places)}" if places else f"none of {total} settings."


def _items(texts: Sequence[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def _masked(row: MaskedRow) -> tuple[str, ...]:
    cost = "nothing beyond chance" if row.late_cost.noise else "something" if row.late_cost.mean > 0 else "they help"
    shares = map(percent, (row.masked, row.late_masked, row.waited, row.waited_masked))
    return row.workload, f"{row.load:g}", *shares, points(row.late_cost), cost


def _late_verdict(over: Sequence[MaskedRow]) -> str:
    kept = sum(row.late_masked >= GOAL_MASKED for row in over)
    least = min(over, key=lambda row: row.late_masked)
    return (
        "A run begins with nothing in the queue, so that there is nothing to wait behind: of the requests that came in "
        f"the last third of the window {kept} of {len(over)} settings have it (mean "
        f"{percent(fmean(row.late_masked for row in over))}, least {percent(least.late_masked)} on {least.workload} at "
        f"{least.load:g} λ*)."
    )


def _masked_verdict(late: Sequence[MaskedRow]) -> str:
    over = [row for row in late if row.load >= OVERLOAD]
    if not over:
        return "Masking in overload: not measured."
    least = min(over, key=lambda row: row.masked)
    kept = sum(row.masked >= GOAL_MASKED for row in over)
    word = "met" if kept == len(over) else "**not met**"
    costs = [row for row in over if not row.late_cost.noise and row.late_cost.mean > 0]
    harm = (
        "nowhere in overload do late annotations cost more than chance"
        if not costs
        else "late annotations cost goodput at "
        + "; ".join(f"{row.workload} {row.load:g} λ* ({points(row.late_cost)} points)" for row in costs)
    )
    return (
        f"Goal, at least {GOAL_MASKED:.0%} of the annotations before dispatch from {OVERLOAD:g} λ* on: {word}, "
        f"{kept} of {len(over)} settings have it (mean {percent(fmean(row.masked for row in over))}, least "
        f"{percent(least.masked)} on {least.workload} at {least.load:g} λ*). {_late_verdict(over)} Of the requests "
        "that were not dispatched in the instant at which they came, "
        f"{percent(fmean(row.waited_masked for row in over))} had their annotation "
        f"by then; {harm}."
    )


STUDY: Study[Cell, CognitionRow] = Study(
    name="worth",
    about="Measures what cognition is worth to the mesh, and what late annotations cost. Without --data, no traces are "
    "run. Settings that are not run keep the rows of the page before, with the commit whose code computed them.",
    takes=("out", "seeds", "seconds", "processes", "cells", "data", "only", "at", "pages_only"),
    defaults=Options(seconds=1800.0),
    cells=lambda options, found: batches_of_worth(options.part(experiment_of(options))),
    rows=lambda options, found: found_of(options, found)[0],
    plain=plain,
    values=page_of,
    also=lambda rows, options, found: {LATE: [plain(row) for row in found_of(options, found)[1]]},
)
