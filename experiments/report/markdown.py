"""What all pages of results share: names of systems, verdicts on claims, the conditions of the runs."""

from dataclasses import dataclass
from pathlib import Path

from experiments.pages.template import render
from experiments.report.results import CellResults
from hmas.sim.processes.fleet import FleetSetting
from hmas.sim.setup import PLUGIN_CHUNK_TOKENS
from hmas.statera.agent.config import FenceConfig
from hmas_lab.sim.baselines.systems import BASELINES
from hmas_lab.sim.systems import HMAS, MESHES

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
ESG = "hmas-esg"  # the default with its switch for ESG
FCFS = "vllm", "fixed-fcfs"  # plain FCFS, without the mesh and in it
# Variants of the default profile: shown, but not counted as rivals of it.
VARIANTS = frozenset({"hmas-plugin", ESG})


def name_of(system: str) -> str:
    return NAMES.get(system, system)


def verdict(claim: str, holds: bool | None, numbers: str, why: str = "") -> str:
    """Returns a Markdown list item that says whether a claim of the paper holds (None: not measured), with the numbers.
    `why` is added if it does not hold."""
    word = "not measured" if holds is None else "holds" if holds else "**does not hold**"
    tail = f" {why}" if why and holds is False else ""
    return f"- {claim}: {word} ({numbers}).{tail}\n"


def counted(claims: str) -> dict[str, int]:
    """Returns how many of the verdicts in a list hold (`held`), and how many there are (`claims`)."""
    lines = [line for line in claims.splitlines() if line.startswith("- ")]
    return {"held": sum(": holds (" in line for line in lines), "claims": len(lines)}


def exceeds(a: float, b: float) -> bool | None:
    """Tells whether a > b; None if one of them is nan, that is not measured."""
    return None if a != a or b != b else a > b


def baselines_of(results: CellResults) -> list[tuple[str, str, str]]:
    """Returns table rows: each baseline of an experiment, and against what it was checked and compared."""
    found = [BASELINES[system] for system in results.experiment.systems if system in BASELINES]
    return [(name_of(each.name), each.checked, each.compared) for each in found]


def step_limits(results: CellResults) -> list[str]:
    """Returns the tokens and requests that a step of an engine holds at most, where they are not the profile's own:
    one text for each pair of limits, with the systems of the page that have it."""
    profile = results.experiment.engine
    own = profile.limits.max_num_batched_tokens, profile.limits.max_num_seqs
    systems: dict[tuple[int, int], list[str]] = {}
    for system in results.experiment.systems:
        if baseline := BASELINES.get(system):
            limits = baseline.core(profile, FleetSetting(seed=1)).profile.limits
            found = limits.max_num_batched_tokens, limits.max_num_seqs
        else:
            found = (PLUGIN_CHUNK_TOKENS, own[1]) if MESHES[system].plugin else own
        if found != own:
            systems.setdefault(found, []).append(name_of(system))
    return [f"{', '.join(names)}: {tokens} and {seqs}" for (tokens, seqs), names in systems.items()]


@dataclass(frozen=True, slots=True)
class EsgTrades:
    """Of the `settings` with both plain FCFS and our default, those in which the default brings less ESG: `told` says
    how much, and for how much goodput."""

    settings: int
    told: list[str]


def esg_trades(results: CellResults) -> EsgTrades:
    """Returns where the default brings less ESG than plain FCFS: means over the seeds that both have."""
    settings, told = 0, []
    systems = results.experiment.systems
    fcfs = next((system for system in FCFS if system in systems), None)
    if fcfs is None or HMAS not in systems:
        return EsgTrades(0, [])
    for spec, load in results.settings():
        esg = results.ratio(spec, load, HMAS, fcfs, "score", "esg_rate")
        if not esg.count:
            continue
        settings += 1
        if esg.mean < 1.0:
            points = 100.0 * results.lead(spec, load, HMAS, fcfs, "score", "goodput_rate").mean
            words = f"{spec.name} at {load:g}: {100.0 * (esg.mean - 1.0):.1f} % for {points:+.1f} points"
            switched = results.ratio(spec, load, ESG, fcfs, "score", "esg_rate") if ESG in systems else None
            if switched is not None and switched.count:
                words += f", with the switch {100.0 * (switched.mean - 1.0):+.1f} %"
            told.append(words)
    return EsgTrades(settings, told)


def page(name: str, results: CellResults, **values: object) -> str:
    """Renders the template `name` with `values` and what every page of an experiment needs."""
    shared = {"results": results, "experiment": results.experiment, "name_of": name_of}
    shared["limits"] = step_limits(results)
    shared["EPSILON"] = FenceConfig().epsilon
    shared["baselines"] = baselines_of(results)
    shared["esg"] = esg_trades(results)
    return render(Path(__file__).with_name(name), **shared, **values)
