"""What all pages of results share: names of systems, verdicts on claims, the conditions of the runs."""

from pathlib import Path

from experiments.report.results import CellResults
from experiments.report.template import render
from hmas.sim.baselines.systems import BASELINES, SARATHI_CHUNK
from hmas.statera.agent.config import FenceConfig

NAMES = {
    "vllm": "vLLM (FCFS)",
    "vllm-priority": "vLLM (priority)",
    "sglang": "SGLang (FCFS)",
    "sglang-lpm": "SGLang (LPM)",
    "lightllm": "LightLLM",
    "sarathi-fcfs": "Sarathi-FCFS",
    "sarathi-edf": "Sarathi-EDF",
    "sarathi-srpf": "Sarathi-SRPF",
    "niyama": "Niyama",
    "dynamo": "Dynamo's order (re-implemented)",
    "llm-d": "llm-d's order (re-implemented)",
    "hmas": "H-MAS (ours)",
    "hmas-paper": "H-MAS as published",
    "hmas-perfect": "H-MAS, perfect predictions",
    "hmas-noisy": "H-MAS, noisy oracle",
    "hmas-esg": "H-MAS, ESG profile",
    "hmas-deadline": "H-MAS, by deadline alone",
    "hmas-plugin": "H-MAS with the vLLM plug-in",
}
# Variants of the default profile: shown, but not counted as rivals of it.
VARIANTS = frozenset({"hmas-plugin", "hmas-esg"})


def name_of(system: str) -> str:
    return NAMES.get(system, system)


def verdict(claim: str, holds: bool | None, numbers: str, why: str = "") -> str:
    """Returns a Markdown list item that says whether a claim of the paper holds (None: not measured), with the numbers.
    `why` is added if it does not hold."""
    word = "not measured" if holds is None else "holds" if holds else "**does not hold**"
    tail = f" {why}" if why and holds is False else ""
    return f"- {claim}: {word} ({numbers}).{tail}\n"


def exceeds(a: float, b: float) -> bool | None:
    """Tells whether a > b; None if one of them is nan, that is not measured."""
    return None if a != a or b != b else a > b


def baselines_of(results: CellResults) -> list[tuple[str, str, str]]:
    """Returns table rows: each baseline of an experiment, and against what it was checked and compared."""
    found = [BASELINES[system] for system in results.experiment.systems if system in BASELINES]
    return [(name_of(each.name), each.checked, each.compared) for each in found]


def page(name: str, results: CellResults, **values: object) -> str:
    """Renders the template `name` with `values` and what every page of an experiment needs."""
    shared = {"results": results, "experiment": results.experiment, "SARATHI_CHUNK": SARATHI_CHUNK, "name_of": name_of}
    shared["EPSILON"] = FenceConfig().epsilon
    shared["baselines"] = baselines_of(results)
    return render(Path(__file__).with_name(name), **shared, **values)
