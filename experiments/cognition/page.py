"""docs/results/cognition.md from the figures of cognition.json. Pure."""

from collections.abc import Iterable
from typing import Any

from hmas.perception.evaluation import THIN_TYPES
from hmas.prediction.training.measurements import LLM_PILOT

_BAR = 40
_CONTESTABLE = (
    "Translation has one source only: without it, it is known from synthetic prompts alone. `contested`: prompts whose "
    "first paragraph names another type than their label in so many words. Labels are given to whole sources: "
    "self-instruct's and IFEval's prompts are all InstructionFollowing, whatever they ask for (a summary, a letter, an "
    "essay), the P3 templates that extract the answer to a question are Extraction, and many of Deep Research Bench's "
    "questions read like QA or a report."
)


def page(figures: dict[str, Any]) -> str:
    perceived, predicted = figures["perception"], figures["prediction"]
    parts = [
        "# Cognition: perception and prediction on held-apart data",
        "Written by `make eval-cognition`; the numbers are also in `cognition.json`. Perception: "
        f"`{perceived['version']}`, test part by prompt id ({perceived['task']['prompts']} typed prompts, "
        f"{perceived['length_model_unknown']['answers']} answers of language models). Prediction: "
        f"`{predicted['version']}`, a fifth of the rows of each file. Both are the shipped artefacts.",
        "## The paper's Table 5 beside ours",
        _table5(figures),
        "The paper's corpora differ from ours, so the columns compare claims, not systems. Decode time is that of a "
        "request, first token to last; per token it is given below.",
        "## What falls short",
        missed(figures),
        "## Task type",
        _task(perceived),
        "## Each source left out",
        _loso(perceived),
        "## Output length",
        _length(figures),
        "## The conformal fence on top",
        _fence(perceived["fence"]),
        "## What it is worth to the scheduler",
        _served(perceived["served"]),
        "## Prediction",
        _prediction(predicted),
        "## Hardware never seen, corrected online",
        _curves(predicted["curves"]),
        "## Latency",
        _latency(figures["latency"]),
    ]
    return "\n\n".join(parts) + "\n"


def _table5(figures: dict[str, Any]) -> str:
    task, length = figures["perception"]["task"], figures["perception"]["length_model_known"]
    rows = [
        ("Task type, accuracy", "94.2 %", _percent(task["accuracy"])),
        ("Output tokens, MAPE", "12.4 %", _percent(length["mape"])),
        ("TTFT target, MAE", "18.5 ms", f"{task['ttft_mae_ms']:.1f} ms"),
        ("TPOT target, MAE", "3.2 ms", f"{task['tpot_mae_ms']:.2f} ms"),
        ("Decode time, R²", "0.9576", f"{figures['r2_decode']:.4f}"),
        ("Token throughput, R²", "0.9418", f"{figures['r2_throughput']:.4f}"),
        ("Mean latency per token, R²", "0.9319", f"{figures['r2_latency_per_token']:.4f}"),
        ("Prefill time, R²", "0.7236", f"{figures['r2_prefill']:.4f}"),
    ]
    return _rows(("", "paper", "ours"), rows)


def missed(figures: dict[str, Any]) -> str:
    """Goals and figures of the paper that ours do not reach, and why."""
    task, length, latency = (
        figures["perception"]["task"],
        figures["perception"]["length_model_known"],
        figures["latency"],
    )
    gain, neither = figures["loso_gain_over_rules"], figures["length_mae_gain_over_mlp_neither_named"]
    lengths = "the models of the corpus answer one prompt in lengths that differ by a factor of two, and short answers"
    slower = "one layer of the encoder takes two thirds of it, patterns, words and trees the rest"
    goals = [
        ("Output tokens, MAPE", length["mape"], 0.124, _percent, False, f"{lengths} weigh most in a relative error"),
        (
            "TTFT target, MAE in ms", task["ttft_mae_ms"], 18.5, "{:.1f}".format, False,
            "targets of two types lie seconds apart, so few wrong types (InstructionFollowing against QA or a long "
            "form, mostly) make the whole of the error",
        ),
        (
            "Sources left out, accuracy above the rules", gain, 0.15, _percent, True,
            "the rules were written with every source in view; the sources that fail have labels that their prompts "
            "contest, or a genre of their own",
        ),
        (
            "Length MAE below MLP, model's name given to neither", neither, 0.19, _percent, True,
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
    return _rows(("", "goal", "ours", "why"), rows) if rows else "Nothing that was asked for."


def _task(perceived: dict[str, Any]) -> str:
    task = perceived["task"]
    thin = {str(kind) for kind in THIN_TYPES}
    usual = [(name, count, _percent(share)) for name, (count, share) in task["by_type"].items() if name not in thin]
    rare = [(name, count, _percent(share)) for name, (count, share) in task["by_type"].items() if name in thin]
    plot = [
        f"{threshold:4.2f}  {100 * rejected:5.1f} %  {100 * accuracy:6.2f} %  {'#' * round(_BAR * accuracy)}"
        for threshold, rejected, accuracy in task["rejection"]
    ]
    return "\n\n".join(
        [
            f"Accuracy {_percent(task['accuracy'])}, expected calibration error {_percent(task['ece'])} (15 bins); "
            f"{_percent(task['rejected'])} are tagged *unknown*. SLO fields are scored with the importance known.",
            _rows(("type", "prompts", "accuracy"), usual),
            "Types with little data:",
            _rows(("type", "prompts", "accuracy"), rare),
            "Rejected as unknown against accuracy of the rest:",
            "```\nleast  rejected  accuracy\n" + "\n".join(plot) + "\n```",
        ]
    )


def _loso(perceived: dict[str, Any]) -> str:
    if "loso" not in perceived:
        return str(perceived["held_out"])
    mean = perceived["loso_mean"]
    titles = {"ours": "ours", "rules": "hand-written rules", "bare": "bare head", "learnt_rules": "learnt rules"}
    names = [name for name in titles if name in mean]
    rows = [
        (source, row["prompts"], *(_percent(row[n]) for n in (*names, "contested")))
        for source, row in perceived["loso"].items()
    ]
    rows.append(("mean over sources", "", *(_percent(mean[name]) for name in names), ""))
    return "\n\n".join(
        [
            "Heads retrained without the source and without synthetic prompts over its texts (at most 200 prompts of "
            "each other source), against rules. The hand-written rules, and the phrases that synthetic prompts are "
            "made of, were written with the genres and the wording of all sources in view: neither column is blind. "
            "What nobody wrote are keyword rules learnt from the other sources (a decision list)"
            + (
                " and the bare head, which reads the encoder and saw the other sources only." if "bare" in mean else "."
            ),
            _rows(("source", "prompts", *(titles[name] for name in names), "contested"), rows),
            _CONTESTABLE,
        ]
    )


def _served(runs: list[dict[str, Any]]) -> str:
    rows = [
        (f"{run['load']:g}", run["estimator"], run["requests"], _percent(run["goodput_rate"]),
         f"{run['goodput']:.2f}", f"{run['esg']:.0f}")
        for run in runs
    ]  # fmt: skip
    return "\n\n".join(
        [
            "The mesh in virtual time with its default policy on one emulated engine (Qwen3-32B on two H100): prompts "
            "of the test part, alike by type, in bursts (coefficient of variation 2), each with the length of a real "
            "answer. The type found gives the SLO that the mesh works for, the true type the one it is scored by; the "
            "answering model's name is not told. Load is in units of the rate at which FCFS keeps 95 % inside both "
            "SLOs; one seed, so a point or two is chance. Costs are the engine's own but for the rules, which go with "
            "the linear profile.",
            _rows(("load", "what cognition knows", "requests", "inside both SLOs", "per second", "ESG/s"), rows),
        ]
    )


def _length(figures: dict[str, Any]) -> str:
    perceived = figures["perception"]
    both = (perceived["length_model_unknown"], perceived["length_model_known"])
    rows = [
        ("MAE, tokens", *(f"{f['mae']:.0f}" for f in both)),
        ("MAPE", *(_percent(f["mape"]) for f in both)),
        ("Kendall's τ", *(f"{f['kendall_tau']:.3f}" for f in both)),
        ("pinball loss at 0.5", *(f"{f['pinball_50']:.1f}" for f in both)),
        ("pinball loss at 0.9", *(f"{f['pinball_90']:.1f}" for f in both)),
        ("answers within the 90 % quantile", *(_percent(f["coverage"]) for f in both)),
    ]
    text = [
        _rows(("", "answering model unknown", "answering model known"), rows),
        "In this corpus a model's name often tells the data set too, which flatters every figure that has it; a mesh "
        "whose models are none of the corpus' is the left column.",
        f"With every prompt counted alike (some have thirty answers) {_percent(perceived['coverage_by_prompt'])} lie "
        "within the 90 % quantile.",
        f"Linear regression on prompt length: MAE {perceived['length_linear_mae']:.0f}; ours is "
        f"{_percent(figures['length_mae_gain_over_linear'])} lower, and with the model unknown "
        f"{_percent(1 - both[0]['mae'] / perceived['length_linear_mae'])} lower.",
    ]
    if "mlp_mae" in perceived:
        mlp = [(name.replace("_", " "), f"{mae:.0f}") for name, mae in perceived["mlp_mae"].items()]
        text += [
            "MLP on the six-layer MiniLM embedding of the prompt, mean of three seeds:",
            _rows(("baseline", "MAE, tokens"), mlp),
            "The better way to train each baseline counts. Maestro's margins (its Table VI) are those of a predictor "
            "that reads structured features over baselines that read an embedding alone. Ours is "
            f"{_percent(perceived['mlp_gains']['all_inputs'])} below it as Maestro compares (all our inputs, with "
            "the answering model's name, against an embedding alone); with that name given to neither "
            f"{_percent(perceived['mlp_gains']['neither_has_the_name'])}, to both "
            f"{_percent(perceived['mlp_gains']['both_have_the_name'])}.",
        ]
    return "\n\n".join(text)


def _fence(fence: dict[str, Any]) -> str:
    rows = [
        (b["prompt_upto"], b["requests"], _percent(b["missed"]), f"{_percent(b['low'])} to {_percent(b['high'])}")
        for b in fence["buckets"]
    ]
    return "\n\n".join(
        [
            f"Statera's fence, ε = {fence['epsilon']}, over {fence['requests']} settled requests whose mix of sources "
            f"changes four times: {_percent(fence['missed'])} outgrew their bound.",
            _rows(("prompt tokens up to", "requests", "missed", "95 % interval"), rows),
        ]
    )


def _prediction(predicted: dict[str, Any]) -> str:
    columns = ("prefill", "decode", "tpot", "tpot_weighted")
    rows = [_r2(name, f, columns) for name, f in predicted["files"].items()]
    rows.append(_r2(f"{LLM_PILOT}, unseen configurations", predicted["unseen_configurations"], columns))
    rows += [_r2(f"unseen model {name}", f, columns) for name, f in predicted["unseen_models"].items()]
    pilot = predicted["files"][LLM_PILOT]
    return "\n\n".join(
        [
            "R². `decode`: first token to last of a request; `tpot`: its mean per token, each request counted alike "
            "(two tokens make one noisy gap); `tpot, weighted`: each token counted alike. As in the paper the true "
            "output length and the concurrency of the run are inputs; live they are the prediction and the engine's "
            "running and waiting requests.",
            _rows(("held apart", "rows", "prefill", "decode", "tpot", "tpot, weighted"), rows),
            f"Rows of LLM-Pilot within the 90 % quantile: prefill {_percent(pilot['upper_prefill'])}, time per token "
            f"{_percent(pilot['upper_tpot'])}.",
        ]
    )


def _r2(name: str, figures: dict[str, Any], columns: Iterable[str]) -> tuple[Any, ...]:
    return (name, figures["rows"], *(f"{figures[column]:.4f}" for column in columns))


def _curves(curves: list[dict[str, Any]]) -> str:
    text = [
        "Every configuration of the accelerator is left out of the fit; its requests then settle one by one at its "
        "own worker, which is measured in place as in the mesh. Median |log(predicted / observed)|: 0.1 is about 10 %. "
        "Prefill here holds the wait inside an engine that up to 128 users load, in random order; in the mesh that "
        "wait is the worker's queue."
    ]
    for curve in curves:
        rows = [
            (n, f"{p:.3f}", f"{t:.3f}")
            for n, p, t in zip(curve["requests"], curve["prefill"], curve["tpot"], strict=True)
        ]
        text.append(
            f"{curve['hardware']} (uncorrected: prefill {curve['uncorrected_prefill']:.3f}, time per token "
            f"{curve['uncorrected_tpot']:.3f}):"
        )
        text.append(_rows(("settled requests", "prefill", "time per token"), rows))
    return "\n\n".join(text)


def _latency(latency: dict[str, float]) -> str:
    rows = [
        ("mean", "1.64 ms", f"{latency['mean_ms']:.2f} ms"),
        ("p80", "2 ms", f"{latency['p80_ms']:.2f} ms"),
        ("p98", "4 ms", f"{latency['p98_ms']:.2f} ms"),
        ("batched", "600 requests/s", f"{latency['rate']:.0f} requests/s"),
    ]
    return "\n\n".join(
        [
            "Perception and prediction of one request after another on one core, prompts drawn from the corpus, best "
            f"of three rounds (load average of the machine {latency['load_average']:.1f}); the tokenizer takes "
            f"{_percent(latency['tokenizer_share'])} of it.",
            _rows(("", "paper (H-MAS App. E.4)", "ours"), rows),
        ]
    )


def _rows(header: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    lines = [list(map(str, row)) for row in rows]
    names = list(map(str, header))
    rule = ["---"] * len(names)
    return "\n".join("| " + " | ".join(line) + " |" for line in [names, rule, *lines])


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
