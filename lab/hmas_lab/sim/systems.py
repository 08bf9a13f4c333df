"""All systems that the simulator can compare, by name, and the function that runs one of them."""

from dataclasses import replace
from math import inf

from hmas.contracts.control import INITIAL_TOPOLOGY, Hints, Split, TopologyName
from hmas.engine.core.profile import EngineProfile
from hmas.entry_points import topology_names
from hmas.gateway.agent.questions.cognition_queue import CognitionQueueConfig
from hmas.meta.agent.config import LayoutConfig, MetaConfig, RulesConfig
from hmas.sim.effect_log import EffectLog
from hmas.sim.estimators import cost_model
from hmas.sim.faults import Fault
from hmas.sim.past.rehearsal import of_blocks
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.processes.fleet import run_fleet
from hmas.sim.processes.mesh import MeshSim
from hmas.sim.recordings import RecordingFolder
from hmas.sim.result import SimResult
from hmas.sim.setup import POOL, MeshSetup
from hmas.sim.times import ModelTimes
from hmas.sim.workload import Workload
from hmas.statera.agent.config import FenceConfig, NRunConfig, NRunRule, StateraConfig
from hmas.worker.agent.config import WorkerConfig
from hmas_lab.sim.baselines.systems import BASELINES, predicts

HMAS = "hmas"
FIXED_PREFIX = "fixed-"

WHOLE_BOUNDS = FenceConfig(shared_factor=inf)  # memory is reserved for each request at its bound
MOVING = NRunConfig(rule=NRunRule.BAND)
UNTIMED = NRunConfig(rule=NRunRule.ENGINE)
NO_FENCE = WorkerConfig(worker="w0", incarnation="1", address="", pool=POOL, fenced=False)

# H-MAS as published: without MaxOnTime, with its initial topology (Algorithm 1), and with both loops of Algorithm 2.
PAPER = "hmas-paper"
PAPER_RULES = RulesConfig(usual=TopologyName.SJF)
ALWAYS_MIXED = LayoutConfig(adaptive=False)
AS_PUBLISHED = MetaConfig(rules=PAPER_RULES, layout=ALWAYS_MIXED)
PUBLISHED_STATERA = StateraConfig(fence=WHOLE_BOUNDS, band=replace(MOVING, u_high=0.85))
# The ablations of H-MAS Table 2: each turns off or replaces one part of the system as published.
ABLATIONS: dict[str, MeshSetup] = {
    "no-two-lane": MeshSetup(
        name="no-two-lane",
        statera_config=PUBLISHED_STATERA,
        meta_config=replace(AS_PUBLISHED, rules=replace(PAPER_RULES, heavy_cv=inf)),
    ),
    "frozen-statera": MeshSetup(name="frozen-statera", statera=False, meta_config=AS_PUBLISHED),
    "no-meta": MeshSetup(name="no-meta", statera_config=PUBLISHED_STATERA, pin=TopologyName.FCFS, split=Split()),
    "rules-cognition": MeshSetup(
        name="rules-cognition",
        estimator="rules",
        costs="linear",
        statera_config=PUBLISHED_STATERA,
        meta_config=AS_PUBLISHED,
    ),
    "prior-cognition": MeshSetup(
        name="prior-cognition", estimator="prior", statera_config=PUBLISHED_STATERA, meta_config=AS_PUBLISHED
    ),
}
# Predictions made from the truth: what better models could bring at most.
NOISY = MeshSetup(name="hmas-noisy", estimator="noisy", costs="engine")
ORACLES: dict[str, MeshSetup] = {
    "hmas-noisy": NOISY,
    "hmas-perfect": MeshSetup(name="hmas-perfect", estimator="perfect", costs="engine"),
    "hmas-short-claims": replace(NOISY, name="hmas-short-claims", estimator="short-claims"),
    **{f"hmas-error-{e}": replace(NOISY, name=f"hmas-error-{e}", sigma=e / 100.0) for e in (0, 20, 70, 150)},  # percent
}
# The default with less to know, and as it would be if what it knows came at once.
NO_TIME = ModelTimes(((1, 0.0), (1024, 0.0)), network_s=0.0)
COGNITION: dict[str, MeshSetup] = {
    "hmas-rules": MeshSetup(name="hmas-rules", estimator="rules", costs="linear"),
    "hmas-prior": MeshSetup(name="hmas-prior", estimator="prior"),
    "hmas-none": MeshSetup(name="hmas-none", estimator="none"),
    "hmas-instant": MeshSetup(
        name="hmas-instant",
        perception=NO_TIME,
        prediction=NO_TIME,
        cognition_queue=CognitionQueueConfig(gather_s=0.0, interval_s=0.0, idle_interval_s=0.0),
    ),
}
# The layout, which the controller chooses otherwise: always mixed, or one cut in ms with an engine on either side of
# it, for pools of two engines.
UNDIVIDED = MetaConfig(layout=ALWAYS_MIXED)
CUTS_MS = (90, 100, 111, 124, 134)


def _split(name: str, cut_ms: int, topology: TopologyName, *, plugin: bool = False) -> dict[str, MeshSetup]:
    name = f"{name}-{cut_ms}"
    return {name: MeshSetup(name=name, pin=topology, split=Split((cut_ms / 1000.0,), (1, 1)), plugin=plugin)}


LAYOUTS: dict[str, MeshSetup] = {
    "hmas-mixed": MeshSetup(name="hmas-mixed", meta_config=UNDIVIDED),
    "hmas-plugin-mixed": MeshSetup(name="hmas-plugin-mixed", plugin=True, meta_config=UNDIVIDED),
}
for _cut_ms in CUTS_MS:
    LAYOUTS |= _split("split", _cut_ms, INITIAL_TOPOLOGY)
    LAYOUTS |= _split("plugin-split", _cut_ms, INITIAL_TOPOLOGY, plugin=True)
    LAYOUTS |= _split("fcfs-split", _cut_ms, TopologyName.FCFS)
# Statera without one of its parts, or with one that ships off: Algorithm 2.
REGULATORS: dict[str, MeshSetup] = {
    setup.name: setup
    for setup in (
        MeshSetup(name="hmas-frozen", statera=False),
        MeshSetup(name="hmas-whole-bounds", statera_config=StateraConfig(fence=WHOLE_BOUNDS)),
        MeshSetup(name="hmas-no-fence", worker_config=NO_FENCE),
        MeshSetup(name="hmas-untimed", statera_config=StateraConfig(band=UNTIMED)),
        MeshSetup(name="hmas-moving", statera_config=StateraConfig(band=MOVING)),
    )
}
# The paper's two lanes and its Algorithm 2, by which N_run moves: both lanes may use all of it, or each has a half.
for _name, _fast_slots in (("two-lane-shared", None), ("two-lane-slots", 0.5)):
    REGULATORS[_name] = MeshSetup(
        name=_name,
        statera_config=StateraConfig(band=MOVING),
        pin=TopologyName.TWO_LANE,
        hints=Hints(fast_slots=_fast_slots),
        split=Split(),
    )
# N_run fixed at a number, whatever time steps have; all else as it ships.
FIXED_N_RUN = (8, 16, 24, 32, 48, 64, 96, 128)
for _n in FIXED_N_RUN:
    REGULATORS[f"nrun-{_n}"] = MeshSetup(
        name=f"nrun-{_n}", statera_config=StateraConfig(band=replace(UNTIMED, n_most=_n))
    )
MESHES: dict[str, MeshSetup] = {
    HMAS: MeshSetup(),
    PAPER: MeshSetup(name=PAPER, statera_config=PUBLISHED_STATERA, meta_config=AS_PUBLISHED),
    "hmas-plugin": MeshSetup(name="hmas-plugin", plugin=True),
    "hmas-esg": MeshSetup(name="hmas-esg", meta_config=MetaConfig(rules=RulesConfig(hints=Hints(by_tokens=True)))),
    "hmas-deadline": MeshSetup(
        name="hmas-deadline", meta_config=MetaConfig(rules=RulesConfig(hints=Hints(slack_share=0.0)))
    ),
    **ORACLES,
    **ABLATIONS,
    **COGNITION,
    **LAYOUTS,
    **REGULATORS,
    "meta-rules": MeshSetup(name="meta-rules", meta_config=MetaConfig(selector="rules")),
    "meta-scripted-llm": MeshSetup(name="meta-scripted-llm", meta_config=MetaConfig(selector="llm")),
    **{
        f"{FIXED_PREFIX}{name}": MeshSetup(name=f"{FIXED_PREFIX}{name}", pin=TopologyName(name), split=Split())
        for name in topology_names()
    },
}


def system_names() -> tuple[str, ...]:
    return (*BASELINES, *MESHES)


def needs_prompts(system: str) -> bool:
    """Tells whether the system's perception reads the text of prompts, so that the workload must have prompts."""
    return reads_shipped(system) or (system in MESHES and MESHES[system].estimator == "rules")


def reads_shipped(system: str) -> bool:
    """Tells whether the system, ours or a baseline that predicts, is told what the perception that ships says."""
    return MESHES[system].estimator == "shipped" if system in MESHES else predicts(system)


def read_by(system: str, workload: Workload) -> Workload:
    """Returns the workload as the perception that ships reads it, if the system uses that; answers are kept for the
    next run."""
    return perceived(workload, folder=FOLDER) if reads_shipped(system) else workload


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
    mesh; a baseline has neither. Raises ValueError for an unknown system, and for a workload that the perception that
    ships has not read (`hmas.sim.perceived`) but the system needs it.
    """
    if reads_shipped(system) and workload.requests and not any(r.recorded for r in workload.requests):
        raise ValueError(f"the perception that ships has not read workload {workload.name}, which {system} needs")
    if system in MESHES:
        setup = replace(MESHES[system], workers=workers, gateways=gateways, faults=faults)
        return MeshSim(setup, profile, engines, workload, seed, log=log, recording=recording, rehearsal=of_blocks).run()
    if system not in BASELINES:
        raise ValueError(f"unknown system {system!r}: choose one of {', '.join(system_names())}")
    costs = cost_model("shipped", {}) if predicts(system) else None
    result = run_fleet(BASELINES[system], workload, profile, engines, seed, costs)
    if log is not None:
        for settlement in result.settlements:
            log.add(settlement.offered_s, system, settlement)
    return result
