"""What `hmas why` says in words of a request that two engines could share."""

from collections.abc import Mapping
from typing import Any

_BECAUSE = {
    "fewer_late": "fewer requests are late by it",
    "even": "about as many requests are late either way and engines keep to prompts or to answers",
    "rule": "HMAS_SPLIT and the engines' roles leave no choice",
}


def in_words(run: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run as it is shown: sentences in place of the values that they tell."""
    shown = dict(run)
    if "ttft_parts" in run:
        shown["ttft_parts"] = first_token_words(run)
    if "choice" in run:
        shown["choice"] = choice_words(run["choice"])
    return shown


def first_token_words(run: Mapping[str, Any]) -> str:
    """Returns the parts of a split run's time to first token, as far as it has come."""
    parts, step_s = run["ttft_parts"], run.get("choice", {}).get("taken", {}).get("step_s")
    step = f"its first step, expected to take {step_s:.4f} s," if step_s else "its first step"
    told = [
        ("queued", parts["queued_s"]),
        ("lost with earlier runs", parts.get("earlier_runs_s")),
        (f"prefill on {run['prefill_engine']}", parts["prefill_s"]),
        ("waited between the engines", parts["waited_s"]),
        (f"transfer to {run['engine']} and {step}", parts["transfer_and_first_step_s"]),
    ]
    words = " + ".join(f"{what} {seconds:.4f} s" for what, seconds in told if seconds is not None)
    return words if run.get("first_token_s") is None else f"{words} = {run['first_token_s']:.4f} s"


def choice_words(choice: Mapping[str, Any]) -> str:
    """Returns why a request was split or not, with what was expected of both."""
    taken, other = choice["taken"], choice["other"]
    done, best = ("split", "single engine") if taken["prefill"] else ("not split", "pair")
    why = _BECAUSE.get(choice["reason"], f"no {best} could take it then")
    words = f"{done}, because {why}: {_pair(taken)} was expected to give the first token {taken['first_s']:.3f} s after"
    words += f" the grant and to make {taken['late']:.2f} requests late"
    if other is None:
        return words
    return f"{words}; {_pair(other)}, the best {best}, {other['first_s']:.3f} s and {other['late']:.2f} requests"


def _pair(forecast: Mapping[str, Any]) -> str:
    return f"{forecast['prefill']} with {forecast['engine']}" if forecast["prefill"] else f"{forecast['engine']} alone"
