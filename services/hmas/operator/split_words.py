"""What `hmas why` says in words of a request that two engines could share."""

from collections.abc import Mapping
from typing import Any


def in_words(run: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a run as it is shown: sentences in place of the values that they tell."""
    shown = dict(run)
    if "ttft_parts" in run:
        shown["ttft_parts"] = first_token_words(run)
    return shown


def first_token_words(run: Mapping[str, Any]) -> str:
    """Returns the parts of a split run's time to first token, as far as it has come."""
    parts = run["ttft_parts"]
    told = [
        ("queued", parts["queued_s"]),
        ("lost with earlier runs", parts.get("earlier_runs_s")),
        (f"prefill on {run['prefill_engine']}", parts["prefill_s"]),
        ("waited between the engines", parts["waited_s"]),
        (f"transfer to {run['engine']} and its first step", parts["transfer_and_first_step_s"]),
    ]
    words = " + ".join(f"{what} {seconds:.4f} s" for what, seconds in told if seconds is not None)
    return words if run.get("first_token_s") is None else f"{words} = {run['first_token_s']:.4f} s"
