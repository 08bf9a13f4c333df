"""Experiment files (YAML): which systems run on which engines and workloads, at which loads, and on which page of
results they appear."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import yaml

from hmas.engine.core.profile import EngineProfile
from hmas.engine.named import named_profile
from hmas.sim.faults import Fault, FaultKind
from hmas_lab.sim.sources import WorkloadSpec
from hmas_lab.sim.systems import system_names

QUICK_S = 300.0
FULL_SEEDS = (1, 2, 3, 4, 5)


class ExperimentError(ValueError):
    """Raised for an experiment file that cannot be run. The message names the file and what to correct."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """An experiment as its file states it. `loads` are in units of lambda*; `rate_rps`, if given, replaces them by one
    rate in requests per second. `engines` is their number and `profile` the name of their profile, or the path of its
    file. `workers` share the engines and `gateways` the requests; `faults` happen in every run of a mesh.
    `chunk_tokens` replaces the profile's token budget per step (max_num_batched_tokens). lambda* is found on workloads
    of `capacity_s` seconds; None: as long as each is itself. `page` names the page of results. `file` of workloads is
    relative to the data folder."""

    name: str
    title: str
    page: str
    profile: str
    engines: int
    workloads: tuple[WorkloadSpec, ...]
    systems: tuple[str, ...]
    loads: tuple[float, ...] = ()
    rate_rps: float | None = None
    seeds: tuple[int, ...] = FULL_SEEDS
    workers: int = 1
    gateways: int = 1
    faults: tuple[Fault, ...] = ()
    chunk_tokens: int | None = None
    capacity_s: float | None = None

    @property
    def engine(self) -> EngineProfile:
        """The engines' profile, with `chunk_tokens` of this experiment applied."""
        return chunked(named_profile(self.profile), self.chunk_tokens)

    def quick(self) -> "Experiment":
        """Returns a short version of the experiment: its first seed only, and workloads of at most `QUICK_S`."""
        short = tuple(replace(w, duration_s=min(w.duration_s, QUICK_S)) for w in self.workloads)
        return replace(self, workloads=tuple(dict.fromkeys(short)), seeds=self.seeds[:1])

    def within(self, data: Path | None) -> "Experiment":
        """Returns the experiment with the trace files of its workloads and the labelled prompts under the folder
        `data`. If `data` is None, the workloads that read a trace file are left out, and the others have no prompts."""
        if data is None:
            return replace(self, workloads=tuple(w.labelled(None) for w in self.workloads if not w.file))
        found = tuple(replace(w, file=str(data / w.file) if w.file else "").labelled(data) for w in self.workloads)
        return replace(self, workloads=found)


def chunked(profile: EngineProfile, chunk_tokens: int | None) -> EngineProfile:
    """Returns the profile with `chunk_tokens` as its token budget per step, or unchanged if that is None. Raises
    ValueError if the budget is below the profile's `max_num_seqs`."""
    return profile if chunk_tokens is None else profile.with_limits(max_num_batched_tokens=chunk_tokens)


def load_experiment(path: Path) -> Experiment:
    """Reads and checks an experiment file. Raises ExperimentError if it cannot be run."""
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ExperimentError(f"{path}: cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise ExperimentError(f"{path}: must be a mapping with name, profile, engines, workloads, systems")
    try:
        return _experiment({"name": path.stem, "title": path.stem, "page": path.stem} | document)
    except (TypeError, ValueError, KeyError) as error:
        raise ExperimentError(f"{path}: {error}") from error


def fault_of(body: dict[str, Any]) -> Fault:
    """Reads a fault from the keys of a YAML mapping. Raises ValueError that says what to correct."""
    if unknown := set(body) - {f.name for f in fields(Fault)}:
        raise ValueError(f"unknown keys {', '.join(sorted(unknown))} for a fault")
    until_s = body.get("until_s")
    return Fault(
        at_s=float(body["at_s"]),
        kind=FaultKind(body["kind"]),
        target=str(body["target"]),
        until_s=None if until_s is None else float(until_s),
        delay_s=float(body.get("delay_s", 0.0)),
        factor=float(body.get("factor", 1.0)),
    )


def _experiment(body: dict[str, Any]) -> Experiment:
    _known(body, Experiment)
    workloads = tuple(_workload(w) for w in body.pop("workloads"))
    body["faults"] = tuple(fault_of(f) for f in body.get("faults", ()))
    for key, kind in (("systems", str), ("loads", float), ("seeds", int)):
        if key in body:
            body[key] = tuple(kind(item) for item in body[key])
    if body.get("capacity_s") is not None:
        body["capacity_s"] = float(body["capacity_s"])
    experiment = Experiment(workloads=workloads, **body)
    _ = experiment.engine
    if unknown := [s for s in experiment.systems if s not in system_names()]:
        raise ValueError(f"unknown systems {', '.join(unknown)}: choose from {', '.join(system_names())}")
    if not experiment.loads and experiment.rate_rps is None:
        raise ValueError("no load is given: add `loads` (in units of lambda*) or `rate_rps` (requests per second)")
    return experiment


def _workload(body: dict[str, Any]) -> WorkloadSpec:
    _known(body, WorkloadSpec)
    if "tenants" in body:
        body = body | {"tenants": tuple((str(name), float(share)) for name, share in body["tenants"].items())}
    body |= {name: float(body[name]) for name in ("duration_s", "start_s", "cv") if name in body}
    return WorkloadSpec(**body)


def _known(body: dict[str, Any], kind: type) -> None:
    names = {f.name for f in fields(kind)}
    if unknown := set(body) - names:
        raise ValueError(
            f"unknown keys {', '.join(sorted(unknown))} for a {kind.__name__}: choose from {', '.join(sorted(names))}"
        )
