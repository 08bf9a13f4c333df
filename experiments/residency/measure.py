"""The cells of the study: one run of a system on a card, each kept as soon as it is computed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from experiments.residency import rivals
from experiments.residency.fleet import AFTER_S, HostFleet, HostSystem
from experiments.residency.workload import CARDS, jobs_before, make_jobs
from experiments.study import Figures, Finished, Options
from hmas.laws.model_places import ResidencyRules, next_switch
from hmas_lab.sim.provenance import SOURCES, source_digest
from hmas_lab.sim.stored import cell_key

SECONDS = 1800.0
RESTART, IDLE, FIRST_COME, COLLATED, OURS = "restart", "idle rule", "first come", "collated LRU", "by deadline"
NO_INTERRUPT, NO_CHECK, NO_WORTH = "no interrupts", "no check of who is hurt", "oldest caller next"
SYSTEMS: Mapping[str, HostSystem] = {
    RESTART: HostSystem(law=rivals.collated, restarts=True),
    IDLE: HostSystem(law=rivals.idle_rule),
    FIRST_COME: HostSystem(law=rivals.first_come),
    COLLATED: HostSystem(law=rivals.collated),
    OURS: HostSystem(law=next_switch),
    NO_INTERRUPT: HostSystem(law=next_switch, rules=ResidencyRules(interrupts=False)),
    NO_CHECK: HostSystem(law=next_switch, rules=ResidencyRules(check_hurt=False)),
    NO_WORTH: HostSystem(law=next_switch, rules=ResidencyRules(by_worth=False)),
}
PAIR = (COLLATED, OURS)
OTHERS = tuple(name for name in SYSTEMS if name not in PAIR)
LOADS = (("five", 0.06), ("five", 0.04), ("twelve", 0.06))
SEEDS = {LOADS[0]: 10, LOADS[1]: 3, LOADS[2]: 2}  # of ours and collated LRU, at most
TRIED = 10  # seeds up to this one were looked at while the systems were made


@dataclass(frozen=True, slots=True, kw_only=True)
class HostCell:
    """One run: the models of a `card`, jobs a second, a system and a seed."""

    card: str
    jobs_per_s: float
    system: str
    seed: int
    data: str

    def key(self) -> str:
        return cell_key(self)

    def __str__(self) -> str:
        return f"{self.card}, {self.jobs_per_s:g} jobs/s, {self.system}, seed {self.seed}"


def code_of(_: Any) -> str:
    """Returns the digest of the code that the figures depend on."""
    return source_digest(("experiments.residency.measure",), (*SOURCES, Path(__file__).parents[2]))


def compute(cell: HostCell) -> Figures:
    data = Path(cell.data)
    card_gb, models = CARDS[cell.card]
    jobs = make_jobs(cell.card, data, cell.jobs_per_s, SECONDS, cell.seed)
    before = [job for some in jobs_before(cell.card, data).values() for job in some]
    run = HostFleet(SYSTEMS[cell.system], card_gb, models, jobs, before).run()
    times_s = [run.ends_s.get(job.id, job.arrival_s + AFTER_S) - job.arrival_s for job in jobs]
    return {
        "share": fmean(time_s <= job.budget_s for time_s, job in zip(times_s, jobs, strict=True)),
        "jobs": len(jobs), "mean_s": fmean(times_s), "wakes": run.wakes, "interrupts": run.interrupts,
        "cached": run.cached / max(1, run.prompts),
    }  # fmt: skip


def cell(card: str, jobs_per_s: float, system: str, seed: int, data: Path | None) -> HostCell:
    return HostCell(card=card, jobs_per_s=jobs_per_s, system=system, seed=TRIED + seed, data=str(data or ""))


def cells(options: Options, found: Finished) -> Iterator[Sequence[HostCell]]:
    """Yields the runs that goals are about, seed by seed, and the others with the first seed at the first load; none
    without data."""
    if options.data is None:
        return
    for seed in options.numbers:
        yield [cell(*load, system, seed, options.data) for load in LOADS if seed <= SEEDS[load] for system in PAIR]
        if seed == 1:
            yield [cell(*LOADS[0], system, seed, options.data) for system in OTHERS]
