"""`python -m experiments.cognition` evaluates perception and prediction and writes docs/results/cognition.md and
cognition.json.

The shipped models are evaluated on data that they were not trained on. Figures that need retraining (each source left
out, the MLP baseline) come from `hmas train perception --held-out`, and are left out if they belong to other data.
"""

import argparse
import csv
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from experiments.cognition import fence as cognition_fence
from experiments.cognition import page as cognition_page
from experiments.cognition import simulated as cognition_sim
from hmas.perception import evaluation as perception
from hmas.perception.backends.model import ARTEFACTS as PERCEPTION
from hmas.perception.backends.model import ModelBackend
from hmas.perception.training.corpus import Prompt, checksum, prompt_files, read_prompts, split
from hmas.prediction import evaluation as prediction
from hmas.prediction.models.catboost_model import CatBoostCostModel
from hmas.prediction.training.measurements import LLM_PILOT, perf_files, read
from hmas.prediction.training.train import ForestRecipe, held_apart

HELD_OUT_FILE = "held_out.json"
LENGTHS_FILE = "cognition_lengths.csv"
LENGTHS_HEADER = ("task", "tokens", "median", "p90")
# What the task head and its encoder depend on; the length heads' part of the recipe does not touch these figures.
HELD_OUT_RECIPE = (
    "seed", "layers", "head_tokens", "tail_tokens", "synthetic_per_type", "shares", "batch_size", "task_epochs", "rate",
    "smoothing", "weight_decay", "word_epochs", "word_decay",
)  # fmt: skip
SIMULATED_LOADS = (1.0, 1.4)  # of the rate at which FCFS keeps 95 % of the requests inside their SLOs
UNSEEN_HARDWARE = ("H100", "T4")
PARTS = ("latency", "perception", "prediction")
Report = Callable[[str], None]


def perception_figures(data: Path, report: Report) -> tuple[dict[str, Any], list[tuple[str, int, float, float]]]:
    """Returns the figures of perception, and for every answer its task type, its length in tokens, and the predicted
    median and 90 % quantile. `data` is the folder with prompts/."""
    backend, files = ModelBackend(), prompt_files(data)
    prompts = read_prompts(files)
    if checksum(files) != backend.metadata["data_sha256"]:
        report("warning: the prompts differ from those that the model was trained on; the split is still by prompt id")
    parts = split(prompts, backend.metadata["recipe"]["seed"])
    test = parts["test"]
    task = perception.evaluate_task(backend, test)
    unknown = perception.evaluate_length(backend, test, model_known=False)
    known = perception.evaluate_length(backend, test, model_known=True)
    report(f"task accuracy {task.accuracy:.3f}, length MAE {known.mae:.0f}, model unknown {unknown.mae:.0f}")
    linear = perception.linear_mae(parts["train"], test)
    figures = {
        "version": backend.version,
        "metadata": backend.metadata,
        "task": asdict(task),
        "length_model_unknown": asdict(unknown),
        "length_model_known": asdict(known),
        "length_linear_mae": linear,
        "coverage_by_prompt": perception.coverage_by_prompt(backend, test),
        "fence": asdict(cognition_fence.drifting(backend, test)),
        "served": [asdict(run) for run in cognition_sim.served(backend, test, SIMULATED_LOADS)],
        **_held_out(backend, prompts, known.mae, unknown.mae),
    }
    return figures, perception.length_rows(backend, test)


def _held_out(backend: ModelBackend, prompts: list[Prompt], known: float, unknown: float) -> dict[str, Any]:
    path = PERCEPTION / HELD_OUT_FILE
    if not path.is_file():
        return {"held_out": f"not measured: run `hmas train perception --held-out` ({path.name} is missing)"}
    held = json.loads(path.read_text())
    recipe = backend.metadata["recipe"]
    same = all(held["recipe"].get(name) == recipe[name] for name in HELD_OUT_RECIPE)
    if not same or any(held.get(name) != backend.metadata.get(name) for name in ("data_sha256", "phrases_sha256")):
        return {"held_out": "measured for another artefact: run `hmas train perception --held-out`"}
    rules = perception.rules_by_source(prompts)
    contested = perception.contested_by_source(prompts)
    ours = held["leave_one_source_out"]
    learnt = perception.learnt_rules_by_source(prompts, recipe["seed"])
    table = {
        source: {"prompts": count, "rules": share, "learnt_rules": learnt[source], "contested": contested[source]}
        | ours[source]
        for source, (count, share) in rules.items()
    }
    mean = {
        name: sum(row[name] for row in table.values()) / len(table)
        for name in ("ours", "rules", "bare", "learnt_rules")
        if all(name in row for row in table.values())
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
    return {"loso": table, "loso_mean": mean, "mlp_mae": mlp, "mlp_gains": gains}


def prediction_figures(data: Path, report: Report) -> dict[str, Any]:
    model = CatBoostCostModel()
    recipe = ForestRecipe(**model.metadata["recipe"])
    figures: dict[str, Any] = {"version": model.version, "metadata": model.metadata, "files": {}}
    for file in perf_files(data):
        rows = read(file)
        test = rows.rows(held_apart(len(rows.prefill_s), recipe))
        figures["files"][file.name] = asdict(prediction.evaluate(model, test))
        if rows.source != LLM_PILOT:
            continue
        figures["per_request"] = prediction.per_request(test)
        few = replace(recipe, trees=min(recipe.trees, 300))
        figures["unseen_configurations"] = asdict(prediction.unseen_configurations(rows, few))
        report(f"unseen configurations: decode R2 {figures['unseen_configurations']['decode']:.3f}")
        figures["unseen_models"] = {k: asdict(v) for k, v in prediction.unseen_models(rows, few, report).items()}
        figures["curves"] = [asdict(curve) for curve in prediction.learning_curves(rows, UNSEEN_HARDWARE, few)]
    return figures


def latency_figures(data: Path) -> dict[str, Any]:
    from benchmarks.bench_cognition import measure, prompts

    before = os.getloadavg()[0]
    return {**measure(prompts(data)), "load_average": before, "version": _version("latency")}


def _version(part: str) -> str:
    """Returns the version of the models that the figures of a part (`PARTS`) depend on."""
    perceives, predicts = ModelBackend().version, CatBoostCostModel().version
    return {"perception": perceives, "prediction": predicts, "latency": f"{perceives} {predicts}"}[part]


def kept_figures(path: Path, parts: Iterable[str]) -> dict[str, Any]:
    """Reads the figures of a former run from `path`. Raises SystemExit if those of one of `parts` are missing or were
    measured with other versions of the models."""
    figures = json.loads(path.read_text()) if path.is_file() else {}
    for part in parts:
        if figures.get(part, {}).get("version") != _version(part):
            raise SystemExit(f"{path} has no {part} figures of the present models: name {part} in --only too")
    return figures


def summary(perceived: dict[str, Any], predicted: dict[str, Any], latency: dict[str, Any]) -> dict[str, Any]:
    """Returns the most important figures by name, for the top of cognition.json; None for one that was not measured."""
    length, pilot = perceived["length_model_known"], predicted["files"][LLM_PILOT]
    mean, gains = perceived.get("loso_mean"), perceived.get("mlp_gains", {})
    return {
        "task_accuracy": perceived["task"]["accuracy"],
        "loso_gain_over_rules": mean["ours"] - mean["rules"] if mean else None,
        "loso_gain_over_learnt_rules": mean["ours"] - mean["learnt_rules"] if mean else None,
        "loso_bare_gain_over_learnt_rules": mean["bare"] - mean["learnt_rules"] if mean and "bare" in mean else None,
        "ece": perceived["task"]["ece"],
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
        "r2_throughput": predicted["per_request"]["throughput"],
        "r2_latency_per_token": predicted["per_request"]["latency_per_token"],
        "r2_prefill": pilot["prefill"],
        "r2_decode_unseen_configuration": predicted["unseen_configurations"]["decode"],
    }


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
    args = parser.parse_args()
    report = Console(stderr=True).print
    kept = kept_figures(args.out / "cognition.json", [part for part in PARTS if part not in args.only])
    latency = latency_figures(args.data) if "latency" in args.only else kept["latency"]
    report(f"latency mean {latency['mean_ms']:.2f} ms")
    args.out.mkdir(parents=True, exist_ok=True)
    if "perception" in args.only:
        perceived, lengths = perception_figures(args.data, report)
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
    (args.out / "cognition.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "cognition.md").write_text(cognition_page.page(figures))
    report(f"wrote {args.out / 'cognition.md'} and cognition.json")


if __name__ == "__main__":
    main()
