"""How often answers outgrew their length bounds: counted in each run, and told on the page of its experiment."""

from collections.abc import Iterable, Mapping
from typing import Any

from hmas.sim.result import SystemRun
from hmas.statera.agent.config import FenceConfig


def bounds_of(run: SystemRun) -> dict[str, int]:
    """Returns how many requests the workers of a run `admitted`, and how many of these had answers longer than their
    bounds (`outgrown`); nothing for a system without workers of ours."""
    if run.coverage is None:
        return {}
    total = run.coverage.total
    return {"admitted": total.admitted, "outgrown": total.outgrown}


def of_cell(figures: Mapping[str, Any] | None) -> dict[str, int]:
    """Returns the same of the stored figures of a run (`hmas_lab.sim.analysis`), nothing if there are none."""
    found = figures["run"].get("coverage") if figures and "run" in figures else None
    return found["total"] if found else {}


def told(runs: Iterable[Mapping[str, Any] | None]) -> str:
    """Returns the sentence for a page, from the figures of its runs; those that have no bounds, and None, are left
    out."""
    found = [run for run in runs if run and run.get("admitted")]
    admitted, outgrown = (sum(run[name] for run in found) for name in ("admitted", "outgrown"))
    if not admitted:
        return "Length bounds: not measured."
    most = max(run["outgrown"] / run["admitted"] for run in found)
    return (
        f"Length bounds: {outgrown / admitted:.1%} of {admitted:,} requests that our workers admitted outgrew theirs, "
        f"at most {most:.1%} in one run (ε = {FenceConfig().epsilon:.0%})."
    )
