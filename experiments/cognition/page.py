"""Makes the page docs/results/cognition.md from the figures of cognition.json. Pure."""

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.cognition.simulated import SEEDS
from experiments.live.prediction_page import AFTER, GOALS
from experiments.pages.paired import paired
from experiments.pages.template import percent, render, table

LEAST_IN_TYPE, LEAST_IN_SOURCE = 60, 30  # prompts, from which on a type is judged and a source averaged
TOLERANCE = {"accuracy": 0.01, "mae": 0.05}  # of a recipe that is carried out again
NOT_KNOWN = "why is not known"
LEFT_OUT_WHY = "what a card's host and software cost is in no data sheet; ADR 21 says what else was tried"
LEFT_OUT_GOALS = (  # name of the figure, what it is, the least R²
    ("lomo_decode_r2", "Language models left out, decode time", 0.9),
    ("lomo_tpot_r2", "Language models left out, time per token, weighted", 0.75),
    ("lomo_prefill_r2", "Language models left out, prefill", 0.7),
    ("loco_decode_r2", "Accelerators left out, decode time", 0.9),
    ("loco_tpot_r2", "Accelerators left out, time per token, weighted", 0.75),
    ("loco_prefill_r2", "Accelerators left out, prefill", 0.7),
)
LEFT_OUT = {"model": "Language model", "card": "Accelerator"}
HEADS = {
    "ours": "all together",
    "network": "network alone",
    "hand_written": "hand-written rules",
    "learnt_rules": "learnt rules",
}


def page(figures: dict[str, Any]) -> str:
    perceived, predicted = figures["perception"], figures["prediction"]
    heads = [name for name in HEADS if name in perceived.get("loso_mean", ())]
    short = shortfalls(figures)
    return render(
        Path(__file__).with_name("page.md.j2"),
        figures=figures,
        missed=missed(short),
        count=len(short),
        heads=heads,
        HEADS=HEADS,
        LEFT_OUT=LEFT_OUT,
        without={name: reason for name, reason in predicted["files"].items() if not isinstance(reason, dict)},
        seeds=len(SEEDS),
        worth=worth(perceived["served"]),
        retrained=retrained(perceived["retrained"]) if "retrained" in perceived else "",
        why_size=why_size(perceived["sizes"], perceived["metadata"]["recipe"]["layers"])
        if "sizes" in perceived
        else "",
    )


def worth(served: list[dict[str, Any]]) -> list[str]:
    """Returns how far the trained perception is ahead of the others at each load, seed by seed."""
    by = {(run["load"], run["estimator"]): run.get("by_seed") for run in served}
    told = []
    for load in sorted({load for load, _ in by}):
        ours = by[load, "trained"]
        gains = {name: paired(ours, rates) for (at, name), rates in by.items() if at == load and ours and rates}
        words = [
            f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f} points against {name}{' (chance)' if gain.noise else ''}"
            for name, gain in gains.items()
            if name != "trained"
        ]
        if words:
            told.append(f"{load:g} λ*: the trained perception has {', '.join(words)}.")
    return told


def retrained(of: dict[str, dict[str, float]]) -> str:
    """Returns how near the recipe, carried out again, comes to what ships, and whether within `TOLERANCE`."""
    again, ships = of["again"], of["ships"]
    points, share = again["accuracy"] - ships["accuracy"], again["mae"] / ships["mae"] - 1.0
    near = abs(points) <= TOLERANCE["accuracy"] and abs(share) <= TOLERANCE["mae"]
    return (
        f"Trained again by its recipe, task accuracy on the test part is {percent(again['accuracy'])} beside "
        f"{percent(ships['accuracy'])}, and the length's MAE {again['mae']:.0f} beside {ships['mae']:.0f} tokens: "
        f"{'within' if near else '**not within**'} {100 * TOLERANCE['accuracy']:g} point and "
        f"{100 * TOLERANCE['mae']:g} %."
    )


def why_size(sizes: list[dict[str, Any]], shipped: int) -> str:
    """Returns what speaks for the tagger with `shipped` layers and against it, by what was measured of all sizes."""
    own = next(size for size in sizes if size["layers"] == shipped)
    least = min(sizes, key=lambda size: size["batched_ms"])
    told = [f"{shipped} layers ship."]
    best = min(sizes, key=lambda size: size["length_log_sd"])
    if best is own:
        told.append("Of all sizes they tell lengths best.")
    else:
        told.append(
            f"{best['layers']} layers tell lengths better ({best['length_log_sd']:.3f} beside "
            f"{own['length_log_sd']:.3f}), for {best['batched_ms'] / own['batched_ms']:.1f} times the CPU time."
        )
    if "goodput_by_seed" in own and "goodput_by_seed" in least and least is not own:
        gains = [paired(a, b) for a, b in zip(own["goodput_by_seed"], least["goodput_by_seed"], strict=True)]
        points = " and ".join(f"{100 * gain.mean:+.1f} ± {100 * gain.half:.1f}" for gain in gains)
        sure = [gain for gain in gains if not gain.noise]
        verb = "buys nothing beyond chance" if not sure else "buys" if min(g.mean for g in sure) > 0 else "costs"
        told.append(
            f"Beside the cheapest, {own['batched_ms'] - least['batched_ms']:.1f} ms more a request {verb}: "
            f"{points} points of goodput."
        )
    return " ".join(told)


def missed(short: Sequence[tuple[str, ...]]) -> str:
    """Returns a Markdown table of the goals that are not reached, with the reasons."""
    return table(("", "goal", "ours", "why"), short) if short else "Nothing that was asked for."


# What was asked for: the figure's name, what is reached, the goal, how both are written, whether more is better, and
# why it is not reached where it is not.
_Goal = tuple[str, float | None, float, Callable[[float], str], bool, str]


def shortfalls(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns each goal that our figures do not reach, with what was asked for, what is reached, and the reason."""
    goals = [*_paper_goals(figures), *_task_goals(figures), *_length_goals(figures), *_cost_goals(figures)]
    return [
        (name, show(goal), show(value), why)
        for name, value, goal, show, higher, why in [*goals, *_latency_goals(figures)]
        if value is not None and (value < goal if higher else value > goal)
    ]


def _paper_goals(figures: dict[str, Any]) -> list[_Goal]:
    task, length = figures["perception"]["task"], figures["perception"]["length_model_known"]
    lengths = "the models of the corpus answer one prompt in lengths that differ by a factor of two, and short answers"
    return [
        ("Output tokens, MAPE", length["mape"], 0.124, percent, False, f"{lengths} weigh most in a relative error"),
        (
            "TTFT target, MAE in ms", task["ttft_mae_ms"], 18.5, "{:.1f}".format, False,
            "targets of two types lie seconds apart, so few wrong types (InstructionFollowing against QA or a long "
            "form, mostly) make the whole of the error",
        ),
    ]  # fmt: skip


def _task_goals(figures: dict[str, Any]) -> list[_Goal]:
    return [
        (
            "Sources left out, accuracy above the rules", figures["loso_gain_over_rules"], 0.15, percent, True,
            "the rules were written with every source in view; the sources that fail have labels that their prompts "
            "contest, or a genre of their own",
        ),
        (
            "Sources left out, all together", figures.get("loso_all_nested"), 0.86, percent, True,
            _why_nested(figures["perception"]),
        ),
        *(
            (
                f"Task type with {LEAST_IN_TYPE} prompts or more: {kind}", accuracy, 0.8, percent, True,
                f"{prompts} prompts; MODEL_CARD.md of perception tells what it is mistaken for",
            )
            for kind, (prompts, accuracy) in figures["perception"]["task"]["by_type"].items()
            if prompts >= LEAST_IN_TYPE
        ),
        ("Task accuracy on the test part", figures.get("task_accuracy"), 0.97, percent, True, NOT_KNOWN),
        ("Expected calibration error", figures.get("ece"), 0.03, percent, False, NOT_KNOWN),
        (
            "Sources left out, network alone", figures.get("loso_network_alone"), 0.6, percent, True, NOT_KNOWN,
        ),
    ]  # fmt: skip


def _length_goals(figures: dict[str, Any]) -> list[_Goal]:
    length, unknown = figures["perception"]["length_model_known"], figures["perception"]["length_model_unknown"]
    neither = figures["length_mae_gain_over_mlp_neither_named"]
    to_the_mean = "regression to the mean: a prompt does not say which of several lengths a model will choose"
    return [
        (
            "Mean log error of a fifth of the predicted lengths, the farthest from 0",
            max(map(abs, unknown.get("log_by_predicted", [0.0]))), 0.15, "{:.2f}".format, False, NOT_KNOWN,
        ),
        *(
            (f"The 90 % quantile's coverage, distance from 90 %{where}", distance, most, percent, False, NOT_KNOWN)
            for where, distance, most in _coverage(unknown)
        ),
        (
            "Output tokens, sd of the log error, model unknown", unknown["log_sd"], 0.62, "{:.2f}".format, False,
            f"with the answering model's name it is {length['log_sd']:.2f}; MODEL_CARD.md of perception has what was "
            "tried",
        ),
        (
            "Mean log error of the shortest tenth", unknown["log_by_true"][0], 0.55, "{:+.2f}".format, False,
            to_the_mean,
        ),
        (
            "Mean log error of the longest tenth", unknown["log_by_true"][-1], -0.6, "{:+.2f}".format, True,
            to_the_mean,
        ),
        (
            "Length MAE below MLP, model's name given to neither", neither, 0.15, percent, True,
            "the embedding holds most of what a prompt says of its answer's length",
        ),
    ]  # fmt: skip


def _cost_goals(figures: dict[str, Any]) -> list[_Goal]:
    return [
        *(
            (
                f"{name}, error after 50 requests over that after 800, in order",
                figures.get(f"after50_{key}_in_order_to_after800"), 1.1, "{:.2f}".format, False,
                "a run begins with a rush that is harder to predict, also by the best constant factor",
            )
            for name, key in (("Time per token", "decode"), ("Prefill", "prefill"))
        ),
        *(
            (
                f"{name} live on {engine}, error after {AFTER} requests", value, GOALS[key], "{:.3f}".format, False,
                "[predicted live](live-prediction.md) tells at which loads, of the engine and of the machine",
            )
            for name, key in (("Time per token", "decode"), ("Prefill", "prefill"))
            for engine, value in figures.get(f"after50_{key}_live", {}).items()
        ),
        *(
            (f"{words}, R²", figures.get(name), least, "{:.3f}".format, True, LEFT_OUT_WHY)
            for name, words, least in LEFT_OUT_GOALS
        ),
        *(
            (
                f"{name}, error after 50 requests over that after 800, mixed",
                figures.get(f"after50_{key}_to_after800"), 1.1, "{:.2f}".format, False, NOT_KNOWN,
            )
            for name, key in (("Time per token", "decode"), ("Prefill", "prefill"))
        ),
    ]  # fmt: skip


def _latency_goals(figures: dict[str, Any]) -> list[_Goal]:
    latency = figures["latency"]
    perceived, read = percent(latency["perception_share"]), percent(latency["tokenizer_share"])
    slower = f"perception takes {perceived} of it, its tokenizer {read}, prediction the rest"
    return [
        ("CPU per request alone, p98 in ms", latency["p98_ms"], 12.0, "{:.2f}".format, False, slower),
        ("CPU per request in batches, mean in ms", 1e3 / latency["rate"], 5.0, "{:.2f}".format, False, slower),
        ("Latency, mean in ms", latency["mean_ms"], 1.64, "{:.2f}".format, False, slower),
        ("Latency, p80 in ms", latency["p80_ms"], 2.0, "{:.2f}".format, False, slower),
        ("Latency, p98 in ms", latency["p98_ms"], 4.0, "{:.2f}".format, False, slower),
        ("Batched, requests/s", latency["rate"], 600.0, "{:.0f}".format, True, slower),
    ]  # fmt: skip


def _coverage(length: dict[str, Any]) -> list[tuple[str, float, float]]:
    """Returns how far the coverage of the 90 % quantile is from that, over all and in the farthest fifth of predicted
    lengths, each with how far it may be."""
    fifths = [abs(share - 0.9) for share in length.get("coverage_by_predicted", ())]
    whole = [("", abs(length["coverage"] - 0.9), 0.02)] if "coverage" in length else []
    return whole + ([(", the farthest fifth of predicted lengths", max(fifths), 0.05)] if fifths else [])


def _why_nested(perceived: dict[str, Any]) -> str:
    """Says what the parts reach that are put together, and the best of them for each source in hindsight."""
    rows = [row for row in perceived.get("loso", {}).values() if row["prompts"] >= LEAST_IN_SOURCE]
    if not rows:
        return "not known"

    def mean(*names: str) -> str:
        return percent(fmean(max(row[name] for name in names) for row in rows))

    return (
        f"no choice of parts has it: network alone {mean('network')}, patterns {mean('rules')}, words {mean('words')}, "
        f"all together {mean('ours')}, and the best of the four for each source in hindsight "
        f"{mean('network', 'rules', 'words', 'ours')}"
    )
