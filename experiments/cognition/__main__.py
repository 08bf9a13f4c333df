"""`python -m experiments.cognition` evaluates perception and prediction and writes docs/results/cognition.md and
cognition.json.

The shipped models are evaluated on data that they were not trained on. Figures that need retraining (each source left
out, the MLP baseline) come from `hmas train held-out`, and are left out if they belong to other data.
"""

import argparse
import csv
import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.cognition import fence as cognition_fence
from experiments.cognition import page as cognition_page
from experiments.cognition import simulated as cognition_sim
from experiments.live.prediction_page import after
from hmas.perception.backends.model import ARTEFACTS as PERCEPTION
from hmas.perception.backends.model import ModelBackend
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.sim.times import ModelTimes
from hmas_lab.perception import evaluation as perception
from hmas_lab.perception.training.corpus import (
    Prompt,
    checksum,
    prompt_files,
    read_prompts,
    read_turns,
    split,
    workflow_files,
)
from hmas_lab.prediction import evaluation as prediction
from hmas_lab.prediction.training.measurements import (
    LLM_PILOT,
    TRAINING,
    NoMeasurements,
    perf_files,
    perf_folder,
    pooled,
    read,
)
from hmas_lab.prediction.training.train import ForestRecipe, held_apart

HELD_OUT_FILE, SIZES_FILE = "held_out.json", "sizes.json"
LIVE_FILE = "live-prediction.json"
LENGTHS_FILE = "cognition_lengths.csv"
LENGTHS_HEADER = ("task", "tokens", "median", "p90")
LEAST_PROMPTS = 30  # sources with fewer are shown, not averaged
BATCH = 16  # requests, for which the time of a size's batch is taken to be as many times that of one in batches
SIMULATED_LOADS = (1.0, 1.4)  # of the rate at which FCFS keeps 95 % of the requests inside their SLOs
PARTS = ("latency", "perception", "prediction")
TOLD_NOW = {"prediction": {"nested"}, "latency": {"perception_share"}}  # what earlier runs did not measure
CPU_INFO = Path("/proc/cpuinfo")  # the flags avx_vnni and avx512_vnni: dot products of 8-bit integers
Report = Callable[[str], None]


def perception_figures(
    data: Path, sizes: Path | None, report: Report
) -> tuple[dict[str, Any], list[tuple[str, int, float, float]]]:
    """Returns the figures of perception, and for every answer its task type, its length in tokens, and the predicted
    median and 90 % quantile. `data` is the folder with prompts/, `sizes` the one with taggers of other sizes."""
    backend, files = ModelBackend(), prompt_files(data)
    prompts = read_prompts(files)
    turns = read_turns(workflow_files(data))
    if checksum([*files, *workflow_files(data)]) != backend.metadata["data_sha256"]:
        report("warning: the prompts differ from those that the model was trained on; the split is still by prompt id")
    seed = backend.metadata["recipe"]["seed"]
    parts = split(prompts, seed)
    test = parts["test"]
    task = perception.evaluate_task(backend, test)
    unknown = perception.evaluate_length(backend, test, model_known=False)
    known = perception.evaluate_length(backend, test, model_known=True)
    report(f"task accuracy {task.accuracy:.3f}, length MAE {known.mae:.0f}, model unknown {unknown.mae:.0f}")
    linear = perception.linear_mae(parts["train"], test)
    lambda_star_rps = cognition_sim.lambda_star_rps(test)
    rates_rps = {load: load * lambda_star_rps for load in SIMULATED_LOADS}
    figures = {
        "version": backend.version,
        "metadata": backend.metadata,
        "task": asdict(task),
        "length_model_unknown": asdict(unknown),
        "length_model_known": asdict(known),
        "tools": asdict(perception.evaluate_tools(backend, [*test, *split(turns, seed)["test"]])),
        "length_linear_mae": linear,
        "coverage_by_prompt": perception.coverage_by_prompt(backend, test),
        "fence": asdict(cognition_fence.drifting(backend, test)),
        "served": [asdict(run) for run in cognition_sim.served(backend, test, rates_rps)],
        **_sizes(backend, test, rates_rps, sizes),
        **_held_out(backend, prompts, known.mae, unknown.mae),
    }
    return figures, perception.length_rows(backend, test)


def _sizes(
    backend: ModelBackend, test: list[Prompt], rates_rps: dict[float, float], folder: Path | None
) -> dict[str, Any]:
    """Returns the figures of taggers of other sizes, if they were measured with the shipped recipe on the same data.
    With the `folder` in which they were trained, each also serves the requests of the test part, and the one of the
    shipped size, which the same recipe trained again, is held against the one that ships."""
    path = PERCEPTION / SIZES_FILE
    found = json.loads(path.read_text()) if path.is_file() else {}
    if any(found.get(name) != backend.metadata[name] for name in ("recipe", "data_sha256")):
        return {}
    rows, again = {row["layers"]: dict(row) for row in found["sizes"]}, dict[str, dict[str, float]]()
    for other in map(ModelBackend, folder.glob("size-*") if folder is not None else ()):
        row = rows[other.metadata["recipe"]["layers"]]
        times = ModelTimes(((1, row["alone_mean_ms"] / 1e3), (BATCH, BATCH * row["batched_ms"] / 1e3)))
        runs = cognition_sim.served(other, test, rates_rps, {"trained": "shipped"}, times)
        row["goodput_rates"] = [run.goodput_rate for run in runs]
        row["goodput_by_seed"] = [run.by_seed for run in runs]
        if other.metadata["recipe"] == backend.metadata["recipe"]:
            again = {"again": _trained(other, test), "ships": _trained(backend, test)}
    return {"sizes": list(rows.values())} | ({"retrained": again} if again else {})


def _trained(backend: ModelBackend, test: list[Prompt]) -> dict[str, float]:
    return {
        "accuracy": perception.evaluate_task(backend, test).accuracy,
        "mae": perception.evaluate_length(backend, test, model_known=False).mae,
    }


def _held_out(backend: ModelBackend, prompts: list[Prompt], known: float, unknown: float) -> dict[str, Any]:
    path = PERCEPTION / HELD_OUT_FILE
    if not path.is_file():
        return {"held_out": f"not measured: run `hmas train held-out` ({path.name} is missing)"}
    held = json.loads(path.read_text())
    if any(held.get(name) != backend.metadata.get(name) for name in ("data_sha256", "phrases_sha256", "recipe")):
        return {"held_out": "measured for another artefact: run `hmas train held-out`"}
    rules = perception.rules_by_source(prompts)
    contested = perception.contested_by_source(prompts)
    ours = held["leave_one_source_out"]
    learnt = perception.learnt_rules_by_source(prompts, backend.metadata["recipe"]["seed"])
    table = {
        source: {"hand_written": share, "learnt_rules": learnt[source], "contested": contested[source]}
        | ours[source]
        | {"prompts": count}
        for source, (count, share) in rules.items()
    }
    averaged = [row for row in table.values() if row["prompts"] >= LEAST_PROMPTS]
    mean = {
        name: sum(row[name] for row in averaged) / len(averaged)
        for name in ("ours", "network", "hand_written", "learnt_rules")
    }
    # The stronger of the two ways to train each baseline.
    mlp = held["mlp_mae"]
    alone = min(mlp["without_model_name_log"], mlp["without_model_name_plain"])
    named = min(mlp["with_model_name_log"], mlp["with_model_name_plain"])
    gains = {
        "all_inputs": 1 - known / alone,  # as Maestro compares: its structured inputs against an embedding alone
        "neither_has_the_name": 1 - unknown / alone,
        "both_have_the_name": 1 - known / named,
    }
    folds = [{name: fold[name] for name in ("outer", "inner", "shares", "inner_accuracy")} for fold in held["folds"]]
    return {"loso": table, "loso_mean": mean, "folds": folds, "mlp_mae": mlp, "mlp_gains": gains}


def prediction_figures(data: Path, report: Report) -> dict[str, Any]:
    model = CatBoostCostModel()
    recipe = ForestRecipe(**model.metadata["recipe"])
    files: dict[str, Any] = {}
    for file in sorted(perf_folder(data).glob("*.csv*")):
        try:
            rows = read(file)
        except NoMeasurements as reason:
            files[file.name] = str(reason)
            continue
        if file.name in TRAINING:
            rows = rows.rows(held_apart(len(rows), recipe))
        files[file.name] = told(prediction.evaluate(model, rows))
    every = pooled(map(read, perf_files(data)))
    left_out = {}
    for by in prediction.CHOSEN_BY:
        found = prediction.left_out(every, by, recipe, report)
        left_out[by] = told(prediction.left_out_figures(every, by, found))
    return {
        "version": model.version,
        "metadata": model.metadata,
        "files": files,
        "left_out": left_out,
        "chosen_by": prediction.CHOSEN_BY,
        "nested": {"depths": prediction.DEPTHS, "folds": prediction.INNER},
        "few": {"rows": prediction.FEW_ROWS, "trees": prediction.FEW_TREES},
    }


def told(figures: Any) -> Any:
    """Returns figures for JSON: a dataclass as an object, and None for what was not measured."""
    if is_dataclass(figures):
        return {field.name: told(getattr(figures, field.name)) for field in fields(figures)}
    if isinstance(figures, dict):
        return {key: told(value) for key, value in figures.items()}
    return None if isinstance(figures, float) and math.isnan(figures) else figures


def latency_figures(data: Path) -> dict[str, Any]:
    from experiments.cognition.latency import measure, prompts

    before = os.getloadavg()[0]
    figures = {**measure(prompts(data)), "load_average": before, "version": _version("latency")}
    if CPU_INFO.is_file():  # Linux
        figures["int8_dot_products"] = "_vnni" in CPU_INFO.read_text(encoding="utf-8")
    return figures


def _version(part: str) -> str:
    """Returns the version of the models that the figures of a part (`PARTS`) depend on."""
    perceives, predicts = ModelBackend().version, CatBoostCostModel().version
    return {"perception": perceives, "prediction": predicts, "latency": f"{perceives} {predicts}"}[part]


def kept_figures(path: Path, parts: Iterable[str]) -> dict[str, Any]:
    """Reads the figures of a former run from `path`. Raises SystemExit if those of one of `parts` are missing, were
    measured with other versions of the models, or are without what the page tells now."""
    figures = json.loads(path.read_text()) if path.is_file() else {}
    for part in parts:
        kept = figures.get(part, {})
        if kept.get("version") != _version(part) or not TOLD_NOW.get(part, set()) <= kept.keys():
            raise SystemExit(f"{path} has no {part} figures of the present models: name {part} in --only too")
    return figures


def summary(perceived: dict[str, Any], predicted: dict[str, Any], latency: dict[str, Any]) -> dict[str, Any]:
    """Returns the most important figures by name, for the top of cognition.json; None for one that was not measured."""
    length, pilot = perceived["length_model_known"], predicted["files"][LLM_PILOT]
    mean, gains = perceived.get("loso_mean"), perceived.get("mlp_gains", {})
    return {
        "task_accuracy": perceived["task"]["accuracy"],
        "loso_network_alone": mean["network"] if mean else None,
        "loso_all_nested": mean["ours"] if mean else None,
        "loso_gain_over_rules": mean["ours"] - mean["hand_written"] if mean else None,
        "loso_gain_over_learnt_rules": mean["ours"] - mean["learnt_rules"] if mean else None,
        "loso_bare_gain_over_learnt_rules": mean["network"] - mean["learnt_rules"] if mean else None,
        "ece": perceived["task"]["ece"],
        "length_log_sd": perceived["length_model_unknown"]["log_sd"],
        "length_mae_gain_like_for_like": gains.get("neither_has_the_name"),
        "length_mae_gain_over_mlp": gains.get("all_inputs"),
        "length_mae_gain_over_mlp_neither_named": gains.get("neither_has_the_name"),
        "length_mae_gain_over_mlp_both_named": gains.get("both_have_the_name"),
        "length_mae_gain_over_linear": 1 - length["mae"] / perceived["length_linear_mae"],
        "length_p90_coverage": length["coverage"],
        "latency_mean_ms": latency["mean_ms"],
        "latency_p80_ms": latency["p80_ms"],
        "latency_p98_ms": latency["p98_ms"],
        "batched_requests_per_s": latency["rate"],
        "r2_decode": pilot["decode"],
        "r2_prefill": pilot["prefill"],
        **_left_out_summary(predicted["left_out"]),
    }


def _left_out_summary(left_out: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures of each model left out (`lomo`) and each card left out (`loco`): R2 over all rows, with the
    trees' depth chosen on inner folds, with the depth that ships (`shipped`), of the groups by which nothing was chosen
    (`untouched`), and of the worst group; and the median |log(predicted / observed)| after 50 settled requests, and its
    ratio to that after 800."""
    figures: dict[str, Any] = {}
    for short, by in (("lomo", "model"), ("loco", "card")):
        own = left_out[by]
        for name, key in (("decode", "decode"), ("tpot", "tpot_weighted"), ("prefill", "prefill")):
            figures[f"{short}_{name}_r2"] = own["pooled"][key]
            figures[f"{short}_{name}_r2_shipped"] = own["shipped"][key]
            figures[f"{short}_{name}_r2_untouched"] = own["untouched"][key]
            figures[f"{short}_{name}_r2_worst"] = min(group[key] for group in own["groups"].values())
    for short, kind in (("", "mixed"), ("_in_order", "corrected")):
        curve, physical = left_out["model"][kind], left_out["model"][f"physical_{kind}"]
        at, late = (curve["settled"].index(count) for count in (50, 800))
        for name in ("decode", "prefill"):
            figures[f"after50_{name}{short}"] = curve[name][at]
            figures[f"after50_{name}{short}_to_after800"] = curve[name][at] / curve[name][late]
            figures[f"after50_{name}{short}_physical"] = physical[name][at]
    return figures


def live_figures(path: Path) -> dict[str, dict[str, float | None]]:
    """Returns the median |log(predicted / measured)| after 50 settled requests, by cost and engine, from the figures
    that `make live-prediction` wrote to `path`; nothing if there are none."""
    if not path.is_file():
        return {}
    pooled = json.loads(path.read_text())["pooled"]
    return {
        f"after50_{cost}_live": {engine: after(errors, cost) for engine, errors in pooled.items()}
        for cost in ("decode", "prefill")
    }


def write(out: Path, figures: dict[str, Any]) -> None:
    """Writes cognition.json and cognition.md into `out`, with the live figures that are there."""
    parts = {name: figures[name] for name in ("perception", "prediction", "latency")}
    leading = {name: value for name, value in figures.items() if name not in parts}
    figures = {**leading, **live_figures(out / LIVE_FILE), **parts}
    (out / "cognition.json").write_text(json.dumps(figures, indent=1) + "\n")
    (out / "cognition.md").write_text(cognition_page.page(figures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("data"), help="folder with prompts/ and perf/")
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="folder to write to")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        help="measure only these parts, and keep the figures of the others from the last run",
    )
    parser.add_argument("--sizes", type=Path, help="folder in which `hmas train sizes` worked: its taggers serve too")
    parser.add_argument("--page", action="store_true", help="measure nothing: write the page anew")
    args = parser.parse_args()
    report = Console(stderr=True).print
    if args.page:
        found = json.loads((args.out / "cognition.json").read_text(encoding="utf-8"))
        write(args.out, found)
        return
    kept = kept_figures(args.out / "cognition.json", [part for part in PARTS if part not in args.only])
    latency = latency_figures(args.data) if "latency" in args.only else kept["latency"]
    report(f"latency mean {latency['mean_ms']:.2f} ms")
    args.out.mkdir(parents=True, exist_ok=True)
    if "perception" in args.only:
        perceived, lengths = perception_figures(args.data, args.sizes, report)
        with (args.out / LENGTHS_FILE).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows([LENGTHS_HEADER, *lengths])
    else:
        perceived = kept["perception"]
    predicted = prediction_figures(args.data, report) if "prediction" in args.only else kept["prediction"]
    figures = {
        **summary(perceived, predicted, latency),
        "perception": perceived,
        "prediction": predicted,
        "latency": latency,
    }
    write(args.out, figures)
    report(f"wrote {args.out / 'cognition.md'} and cognition.json")


if __name__ == "__main__":
    main()
