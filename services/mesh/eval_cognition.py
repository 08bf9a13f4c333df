"""Shell: `python -m services.mesh.eval_cognition` writes docs/results/cognition.md and cognition.json.

Everything on held-apart data, through the shipped artefacts. What only retraining can tell of perception (each source
left out, the MLP baseline) was measured by `hmas train perception --held-out` and is refused if it is of other data.
"""

import argparse
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from services.mesh import cognition_fence, cognition_page
from services.perception import evaluation as perception
from services.perception.model import ARTEFACTS as PERCEPTION
from services.perception.model import ModelBackend
from services.perception.training.corpus import Prompt, checksum, prompt_files, read_prompts, split
from services.prediction import evaluation as prediction
from services.prediction.catboost_model import CatBoostCostModel
from services.prediction.training.measurements import LLM_PILOT, perf_files, read
from services.prediction.training.train import Recipe, held_apart

HELD_OUT_FILE = "held_out.json"
UNSEEN_HARDWARE = ("H100", "T4")
Report = Callable[[str], None]


def perception_figures(data: Path, report: Report) -> dict[str, Any]:
    backend, files = ModelBackend(), prompt_files(data)
    prompts = read_prompts(files)
    if checksum(files) != backend.metadata["data_sha256"]:
        report("the prompts are not those the model was trained on: the split is still by prompt id")
    parts = split(prompts, backend.metadata["recipe"]["seed"])
    test = parts["test"]
    task = perception.evaluate_task(backend, test)
    unknown = perception.evaluate_length(backend, test, model_known=False)
    report(f"task accuracy {task.accuracy:.3f}, length MAE {unknown.mae:.0f}")
    linear = perception.linear_mae(parts["train"], test)
    return {
        "version": backend.version,
        "metadata": backend.metadata,
        "task": asdict(task),
        "length_model_unknown": asdict(unknown),
        "length_model_known": asdict(perception.evaluate_length(backend, test, model_known=True)),
        "length_linear_mae": linear,
        "coverage_by_prompt": perception.coverage_by_prompt(backend, test),
        "fence": asdict(cognition_fence.drifting(backend, test)),
        **_held_out(backend, prompts, unknown.mae),
    }


def _held_out(backend: ModelBackend, prompts: list[Prompt], mae: float) -> dict[str, Any]:
    path = PERCEPTION / HELD_OUT_FILE
    if not path.is_file():
        return {"held_out": f"not measured: run `hmas train perception --held-out` ({path.name} is missing)"}
    held = json.loads(path.read_text())
    if (held["data_sha256"], held["recipe"]) != (backend.metadata["data_sha256"], backend.metadata["recipe"]):
        return {"held_out": "measured for another artefact: run `hmas train perception --held-out`"}
    rules = perception.rules_by_source(prompts)
    ours = held["leave_one_source_out"]
    table = {source: (rules[source][0], ours[source], rules[source][1]) for source in ours}
    mean = {name: sum(row[place] for row in table.values()) / len(table) for place, name in ((1, "ours"), (2, "rules"))}
    # The stronger of the two ways to train the baseline, on the inputs that we have as well: the prompt alone.
    mlp = min(held["mlp_mae"]["without_model_name_log"], held["mlp_mae"]["without_model_name_plain"])
    return {"loso": table, "loso_mean": mean, "mlp_mae": held["mlp_mae"], "length_mae_gain_over_mlp": 1 - mae / mlp}


def prediction_figures(data: Path, report: Report) -> dict[str, Any]:
    model = CatBoostCostModel()
    recipe = Recipe(**model.metadata["recipe"])
    figures: dict[str, Any] = {"version": model.version, "metadata": model.metadata, "files": {}}
    for file in perf_files(data):
        rows = read(file)
        test = rows.rows(held_apart(len(rows.prefill_s), recipe))
        figures["files"][file.name] = asdict(prediction.evaluate(model, test))
        if rows.source != LLM_PILOT:
            continue
        figures["per_request"] = prediction.per_request(test)
        few = replace(recipe, trees=min(recipe.trees, 400))
        figures["unseen_configurations"] = asdict(prediction.unseen_configurations(rows, few))
        report(f"unseen configurations: decode R2 {figures['unseen_configurations']['decode']:.3f}")
        figures["unseen_models"] = {k: asdict(v) for k, v in prediction.unseen_models(rows, few, report).items()}
        figures["curves"] = [asdict(curve) for curve in prediction.learning_curves(rows, UNSEEN_HARDWARE, few)]
    return figures


def latency_figures(data: Path) -> dict[str, float]:
    from benchmarks.bench_cognition import measure, prompts

    before = os.getloadavg()[0]
    return {**measure(prompts(data)), "load_average": before}


def summary(perceived: dict[str, Any], predicted: dict[str, Any], latency: dict[str, float]) -> dict[str, Any]:
    """The figures by their agreed names; None where one was not measured."""
    length, pilot = perceived["length_model_unknown"], predicted["files"][LLM_PILOT]
    mean = perceived.get("loso_mean")
    return {
        "task_accuracy": perceived["task"]["accuracy"],
        "loso_gain_over_rules": mean["ours"] - mean["rules"] if mean else None,
        "ece": perceived["task"]["ece"],
        "length_mae_gain_over_mlp": perceived.get("length_mae_gain_over_mlp"),
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
    parser.add_argument("--out", type=Path, default=Path("docs/results"))
    args = parser.parse_args()
    report = Console(stderr=True).print
    latency = latency_figures(args.data)
    report(f"latency mean {latency['mean_ms']:.2f} ms")
    perceived = perception_figures(args.data, report)
    predicted = prediction_figures(args.data, report)
    figures = {
        **summary(perceived, predicted, latency),
        "perception": perceived,
        "prediction": predicted,
        "latency": latency,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "cognition.json").write_text(json.dumps(figures, indent=1) + "\n")
    (args.out / "cognition.md").write_text(cognition_page.page(figures))
    report(f"wrote {args.out / 'cognition.md'} and cognition.json")


if __name__ == "__main__":
    main()
