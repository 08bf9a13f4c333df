"""All systems that the simulator can compare, by name, and the function that runs one of them."""

from dataclasses import replace
from math import inf

from hmas.contracts.control import Hints, TopologyName
from hmas.engine.core.profile import EngineProfile
from hmas.meta.agent.config import MetaConfig, RulesConfig
from hmas.sim.baselines.run import run_baseline
from hmas.sim.baselines.systems import BASELINES
from hmas.sim.effect_log import EffectLog
from hmas.sim.faults import Fault
from hmas.sim.mesh import MeshSim
from hmas.sim.replay import RecordingFolder
from hmas.sim.result import SimResult
from hmas.sim.setup import MeshSetup
from hmas.sim.workload import Workload

HMAS = "hmas"
FIXED_PREFIX = "fixed-"

PAPER = "hmas-paper"  # H-MAS as published: without MaxOnTime, and with the initial topology of its Algorithm 1
PAPER_RULES = RulesConfig(usual=TopologyName.SJF)
AS_PUBLISHED = MetaConfig(rules=PAPER_RULES)
# The ablations of H-MAS Table 2: each turns off or replaces one part of the system as published.
ABLATIONS: dict[str, MeshSetup] = {
    "no-two-lane": MeshSetup(name="no-two-lane", meta_config=MetaConfig(rules=replace(PAPER_RULES, heavy_cv=inf))),
    "frozen-statera": MeshSetup(name="frozen-statera", statera=False, meta_config=AS_PUBLISHED),
    "no-meta": MeshSetup(name="no-meta", pin=TopologyName.FCFS),
    "rules-cognition": MeshSetup(name="rules-cognition", estimator="rules", meta_config=AS_PUBLISHED),
    "prior-cognition": MeshSetup(name="prior-cognition", estimator="prior", meta_config=AS_PUBLISHED),
}
LENGTH_ERRORS = (0, 20, 70, 150)  # percent; 35 is the default
META_SELECTORS = ("rules", "classifier", "bandit", "changepoint")
MESHES: dict[str, MeshSetup] = {
    HMAS: MeshSetup(),
    PAPER: MeshSetup(name=PAPER, meta_config=AS_PUBLISHED),
    "hmas-plugin": MeshSetup(name="hmas-plugin", plugin=True),
    "hmas-perfect": MeshSetup(name="hmas-perfect", estimator="perfect"),
    "hmas-recorded": MeshSetup(name="hmas-recorded", estimator="recorded"),
    "hmas-esg": MeshSetup(name="hmas-esg", meta_config=MetaConfig(rules=RulesConfig(hints=Hints(by_tokens=True)))),
    "hmas-short-claims": MeshSetup(name="hmas-short-claims", estimator="short-claims"),
    **{f"hmas-error-{e}": MeshSetup(name=f"hmas-error-{e}", sigma=e / 100.0) for e in LENGTH_ERRORS},
    **ABLATIONS,
    **{f"meta-{s}": MeshSetup(name=f"meta-{s}", meta_config=MetaConfig(selector=s)) for s in META_SELECTORS},
    "meta-scripted-llm": MeshSetup(name="meta-scripted-llm", meta_config=MetaConfig(selector="llm")),
    **{f"{FIXED_PREFIX}{t.value}": MeshSetup(name=f"{FIXED_PREFIX}{t.value}", pin=t) for t in TopologyName},
}


def system_names() -> tuple[str, ...]:
    return (*BASELINES, *MESHES)


def needs_prompts(system: str) -> bool:
    """Tells whether the system's estimator reads the text of prompts, so that the workload must have prompts."""
    return system in MESHES and MESHES[system].estimator == "rules"


def run_system(
    system: str,
    workload: Workload,
    profile: EngineProfile,
    engines: int,
    seed: int,
    log: EffectLog | None = None,
    workers: int = 1,
    recording: RecordingFolder | None = None,
    *,
    gateways: int = 1,
    faults: tuple[Fault, ...] = (),
) -> SimResult:
    """Runs one system on a workload and returns the result.

    `engines` is their number, shared by `workers`. `log` hashes the effects of the agents, or the settlements of a
    baseline; `recording` writes the agents' steps, which baselines do not have. `gateways` and `faults` are those of a
    mesh; a baseline has neither. Raises ValueError for an unknown system.
    """
    if system in MESHES:
        setup = replace(MESHES[system], workers=workers, gateways=gateways, faults=faults)
        return MeshSim(setup, profile, engines, workload, seed, log=log, recording=recording).run()
    if system not in BASELINES:
        raise ValueError(f"unknown system {system!r}: choose one of {', '.join(system_names())}")
    result = run_baseline(system, workload, profile, engines, seed)
    if log is not None:
        for settlement in result.settlements:
            log.add(settlement.offered_s, system, settlement)
    return result
