"""Markdown, as little as the pages need."""

from collections.abc import Iterable, Sequence

from experiments.report.results import CellResults
from hmas.sim.baselines.systems import SARATHI_CHUNK
from hmas.sim.experiment import Experiment

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
    "hmas": "H-MAS (ours)",
    "hmas-paper": "H-MAS as published",
    "hmas-perfect": "H-MAS, perfect predictions",
    "hmas-esg": "H-MAS, ESG profile",
    "hmas-plugin": "H-MAS with the vLLM plug-in",
}
# The default profile's own variants: compared, but no rivals of it.
VARIANTS = frozenset({"hmas-plugin", "hmas-esg"})


def name_of(system: str) -> str:
    return NAMES.get(system, system)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def verdict(claim: str, holds: bool | None, numbers: str, why: str = "") -> str:
    """One line about one claim of the paper."""
    word = "not measured" if holds is None else "holds" if holds else "**does not hold**"
    tail = f" {why}" if why and holds is False else ""
    return f"- {claim}: {word} ({numbers}).{tail}\n"


def exceeds(a: float, b: float) -> bool | None:
    """None where one of them was not measured."""
    return None if a != a or b != b else a > b


def setting(results: CellResults) -> str:
    """Under which conditions the page's figures were taken."""
    experiment: Experiment = results.experiment
    stars = ", ".join(
        f"{spec.name} ({spec.duration_s:g} s) {results.capacity_rps(spec):.2f}/s" for spec in experiment.workloads
    )
    return (
        f"Engines: {experiment.engines} × `{experiment.profile}`, {experiment.engine.limits.max_num_batched_tokens} "
        f"tokens per step (Sarathi: {SARATHI_CHUNK}). SLOs: H-MAS Table 6 and Eq. 14. Seeds: "
        f"{results.seeds}; ± is their standard deviation. λ* (highest rate at which FCFS on these engines keeps a "
        f"goodput rate of 0.95, on seeds of its own): {stars}. Predictions of our systems: log-normal length error of "
        "35 %, task type right in 94.2 % of the cases, unless said otherwise.\n"
    )


def incomplete(results: CellResults) -> str:
    if not results.missing:
        return ""
    return f"\n> {len(results.missing)} of this page's runs are not there yet; their entries say 'not measured'.\n"
