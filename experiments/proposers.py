"""What bad proposers cost: the mesh that ships beside meshes whose meta controller is told the worst topology each
time, or by a language model nonsense, too late or nothing. Pure but for the answers of perception, which are kept."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from experiments.length_bounds import bounds_of
from hmas.contracts.control import Hints, TopologyName
from hmas.contracts.views import VLong
from hmas.engine.core.profile import builtin_profile
from hmas.meta.agent.config import MetaConfig, RehearsalConfig
from hmas.meta.agent.selectors.selector import Choice
from hmas.meta.agent.selectors.table import SELECTORS
from hmas.sim import scripted_llm
from hmas.sim.experiment import chunked
from hmas.sim.mesh import MeshSim
from hmas.sim.perceived import FOLDER, perceived
from hmas.sim.rehearsal import of_blocks
from hmas.sim.setup import MeshSetup
from hmas.sim.sources import WorkloadSpec, build
from hmas.sim.stored import cell_key
from hmas.sim.systems import HMAS, MESHES

PROFILE, ENGINES, CHUNK_TOKENS = "qwen3-32b-h100x2", 2, 1024
RATE_RPS, SECONDS = 36.4, 300.0  # 1.4 λ* of these engines
SEEDS = (1, 2, 3, 4, 5)
SEARCH_SEED = 101  # with which the worst topology is found
TOPOLOGIES = (
    TopologyName.FCFS, TopologyName.SJF, TopologyName.EDF, TopologyName.HYBRID, TopologyName.WFQ, TopologyName.TWO_LANE,
)  # fmt: skip
REHEARSED = RehearsalConfig(enabled=True, window_s=120.0, max_candidates=2)
WORST, UNREHEARSED = "worst, rehearsed", "worst, not rehearsed"
NONSENSE, LATE, NEVER = "language model: nonsense", "language model: late", "language model: never"
PROPOSERS = (WORST, NONSENSE, LATE, NEVER)  # what may cost next to nothing
LATE_S, NEVER_S = 9.0, 1e9  # just before the controller stops waiting for an answer, and after
NO_ANSWERS = ("{", '{"topology": "fcfs"}', '{"topology": "none", "bypass": false, "reason": "", "hints": {}}')


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposerCell:
    """One run. `system`: what ships (`HMAS`), a fixed topology, one of `PROPOSERS` or `UNREHEARSED`; `proposed`: the
    topology that a bad proposer names."""

    system: str
    seed: int
    proposed: str = ""
    rate_rps: float = RATE_RPS
    seconds: float = SECONDS

    def key(self) -> str:
        return cell_key(self)


class FixedProposer:
    """A selector that proposes one topology each time."""

    name = "fixed"

    def __init__(self, topology: TopologyName) -> None:
        self._topology = topology

    def select(self, now_s: float, view: VLong, current: Choice) -> Choice:
        return Choice(self._topology, Hints(), "always")


@contextmanager
def _told(cell: ProposerCell) -> Iterator[MeshSetup]:
    """Yields the mesh of a cell, while its proposer says what it is to say."""
    shipped = MESHES[HMAS]
    if cell.system == HMAS:
        yield shipped
        return
    if cell.system in {t.value for t in TopologyName}:
        yield replace(shipped, name=cell.system, pin=TopologyName(cell.system))
        return
    said = f'{{"topology": "{cell.proposed}", "bypass": false, "reason": "", "hints": {{}}}}'
    spoken = cycle(NO_ANSWERS if cell.system == NONSENSE else (said,))
    kept = scripted_llm.answer, scripted_llm.ANSWER_S
    selector = "fixed" if cell.system in (WORST, UNREHEARSED) else "llm"
    SELECTORS["fixed"] = lambda config: FixedProposer(TopologyName(cell.proposed))
    scripted_llm.answer = lambda ask: next(spoken)
    scripted_llm.ANSWER_S = {LATE: LATE_S, NEVER: NEVER_S}.get(cell.system, kept[1])
    try:
        config = MetaConfig(selector=selector)
        if cell.system != UNREHEARSED:
            config = replace(config, rehearsal=REHEARSED)
        yield replace(shipped, name=cell.system, meta_config=config)
    finally:
        del SELECTORS["fixed"]
        scripted_llm.answer, scripted_llm.ANSWER_S = kept


def compute(cell: ProposerCell) -> dict[str, Any]:
    """Makes one run and returns its figures as plain data."""
    profile = chunked(builtin_profile(PROFILE), CHUNK_TOKENS)
    spec = WorkloadSpec(kind="mix", duration_s=cell.seconds, stated=True)
    offered = build(spec, cell.rate_rps, cell.seed, prompts=True).fitting(profile)
    workload = perceived(offered, folder=FOLDER)
    with _told(cell) as setup:
        run = MeshSim(setup, profile, ENGINES, workload, cell.seed, cutoff_s=120.0, rehearsal=of_blocks).run()
    return {
        "goodput_rate": run.score.goodput_rate,
        "topologies": sorted({span.topology for span in run.run.topologies}),
        **bounds_of(run.run),
    }


def worst_of(found: Mapping[ProposerCell, dict[str, Any]]) -> str:
    """Returns the fixed topology with the fewest requests on time in the search."""
    return min(search_cells(), key=lambda cell: found[cell]["goodput_rate"]).system


def search_cells() -> list[ProposerCell]:
    return [ProposerCell(system=topology.value, seed=SEARCH_SEED) for topology in TOPOLOGIES]


def cells_of(worst: str, seeds: Sequence[int]) -> list[ProposerCell]:
    """Returns the runs, seed by seed."""
    return [
        ProposerCell(system=system, seed=seed, proposed="" if system == HMAS else worst)
        for seed in seeds
        for system in (HMAS, UNREHEARSED, *PROPOSERS)
    ]
