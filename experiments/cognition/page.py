"""Makes the page docs/results/cognition.md from the figures of cognition.json. Pure."""

from pathlib import Path
from typing import Any

from experiments.report.template import percent, render, table
from hmas.perception.evaluation import THIN_TYPES
from hmas.prediction.training.measurements import LLM_PILOT

BAR = 40  # length in characters of a bar that stands for a share of 1
RULE = "| --- "
HEADS = {"ours": "ours", "rules": "hand-written rules", "bare": "bare head", "learnt_rules": "learnt rules"}


def page(figures: dict[str, Any]) -> str:
    perceived, predicted = figures["perception"], figures["prediction"]
    heads = [name for name in HEADS if name in perceived.get("loso_mean", ())]
    held_apart = list(predicted["files"].items())
    held_apart.append((f"{LLM_PILOT}, unseen configurations", predicted["unseen_configurations"]))
    held_apart += [(f"unseen model {name}", r2) for name, r2 in predicted["unseen_models"].items()]
    return render(
        Path(__file__).with_name("page.md.j2"),
        figures=figures,
        missed=missed(figures),
        heads=[HEADS[name] for name in heads],
        left_out=_left_out(perceived, heads) if "loso" in perceived else [],
        held_apart=held_apart,
        BAR=BAR,
        LLM_PILOT=LLM_PILOT,
        RULE=RULE * (len(heads) + 3) + "|",
        THIN={str(kind) for kind in THIN_TYPES},
    )


def missed(figures: dict[str, Any]) -> str:
    """Returns a Markdown table of the goals that our figures do not reach, with the reasons."""
    task, length, latency = (
        figures["perception"]["task"],
        figures["perception"]["length_model_known"],
        figures["latency"],
    )
    gain, neither = figures["loso_gain_over_rules"], figures["length_mae_gain_over_mlp_neither_named"]
    lengths = "the models of the corpus answer one prompt in lengths that differ by a factor of two, and short answers"
    slower = "one layer of the encoder takes two thirds of it, patterns, words and trees the rest"
    goals = [
        ("Output tokens, MAPE", length["mape"], 0.124, percent, False, f"{lengths} weigh most in a relative error"),
        (
            "TTFT target, MAE in ms", task["ttft_mae_ms"], 18.5, "{:.1f}".format, False,
            "targets of two types lie seconds apart, so few wrong types (InstructionFollowing against QA or a long "
            "form, mostly) make the whole of the error",
        ),
        (
            "Sources left out, accuracy above the rules", gain, 0.15, percent, True,
            "the rules were written with every source in view; the sources that fail have labels that their prompts "
            "contest, or a genre of their own",
        ),
        (
            "Length MAE below MLP, model's name given to neither", neither, 0.19, percent, True,
            "the embedding holds most of what a prompt says of its answer's length",
        ),
        ("Latency, mean in ms", latency["mean_ms"], 1.64, "{:.2f}".format, False, slower),
        ("Latency, p80 in ms", latency["p80_ms"], 2.0, "{:.2f}".format, False, slower),
        ("Latency, p98 in ms", latency["p98_ms"], 4.0, "{:.2f}".format, False, slower),
        ("Batched, requests/s", latency["rate"], 600.0, "{:.0f}".format, True, slower),
    ]  # fmt: skip
    rows = [
        (name, show(goal), show(value), why)
        for name, value, goal, show, higher, why in goals
        if value is not None and (value < goal if higher else value > goal)
    ]
    return table(("", "goal", "ours", "why"), rows, RULE * 4 + "|") if rows else "Nothing that was asked for."


def _left_out(perceived: dict[str, Any], heads: list[str]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = [
        (source, row["prompts"], *(percent(row[name]) for name in (*heads, "contested")))
        for source, row in perceived["loso"].items()
    ]
    mean = perceived["loso_mean"]
    return [*rows, ("mean over sources", "", *(percent(mean[name]) for name in heads), "")]
