"""Does `hmas whatif --plan` foretell what other engines bring? Traffic on an emulated mesh in real time under one plan,
a prediction for another one, the change, and the same traffic again while engines start and leave."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from experiments.live.running_mesh import HEAR_S, emptied, offered, ordered, running_mesh
from experiments.pages.goal import Goal
from experiments.study import Figures, Finished, Options, Study, code_of_mesh, written
from hmas.contracts.pool_plan import Catalogue, Group, InstanceType, PoolPlan
from hmas.contracts.step_cost import StepCostModel
from hmas.laws.plan_steps import described_plans
from hmas.mesh.planned_pools import PlanFolder
from hmas.mesh.state import read_state
from hmas.runtime.catalogue_file import render_catalogue
from hmas.runtime.plan_file import rendered_plan
from hmas_lab.sim.stored import cell_key

WITHIN, RIGHT = 0.05, 5
SETTLED_S = 180.0  # until the engines are those of a plan, at most
MESH = Path("out/plan-changes/mesh")
MODEL, CARDS = "m", "6xh100"
TP1 = InstanceType(
    name="m-tp1", model=MODEL, hardware="h100", gpus=1, step=StepCostModel(0.015, 7e-5, 2e-4, 1e-7), kv_tokens=40_960,
    max_num_seqs=32, max_num_batched_tokens=512, start_s=5.0,
)  # fmt: skip
TP2 = replace(TP1, name="m-tp2", gpus=2, step=StepCostModel(0.010, 4e-5, 1.2e-4, 6e-8), kv_tokens=100_000)
CATALOGUE = Catalogue((TP1, TP2))


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChange:
    """One change: `seconds` of traffic of a `kind` at `rate` requests/s on the engines of `before`, by type, then on
    those of `after`."""

    kind: str
    rate: float
    before: tuple[tuple[str, int], ...]
    after: tuple[tuple[str, int], ...]
    seed: int
    seconds: int = 60

    def key(self) -> str:
        return cell_key(self)

    @property
    def name(self) -> str:
        told = (described_plans([plan_of(each)]).partition(": ")[2] for each in (self.before, self.after))
        return f"{self.kind} at {self.rate:g}/s, {' to '.join(told)}"


def plan_of(engines: tuple[tuple[str, int], ...]) -> PoolPlan:
    return PoolPlan(pool=MODEL, groups=tuple(Group(*each) for each in engines))


def planned_changes(seconds: int) -> tuple[PlanChange, ...]:
    """Six changes, fixed before the first was made: each begins with the engines at which the one before it ended."""
    two, three = (("m-tp1", 2),), (("m-tp1", 3),)
    mixed, one, pair = (("m-tp2", 1), ("m-tp1", 1)), (("m-tp2", 1),), (("m-tp2", 2),)
    chain = (two, three, two, mixed, one, pair, two)
    loads = (
        ("burst", 10.0),
        ("burst", 10.0),
        ("azure-like", 12.0),
        ("azure-like", 8.0),
        ("burst", 12.0),
        ("burst", 9.0),
    )
    return tuple(
        PlanChange(kind=kind, rate=rate, before=before, after=after, seed=number, seconds=seconds)
        for number, ((kind, rate), before, after) in enumerate(zip(loads, chain, chain[1:], strict=False), 1)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOutcome:
    """What came of one change, as shares on time. `abstained` says why the prediction was not to be believed, or is
    empty. `took_s`: from the order until the engines were those of the plan."""

    run: str
    before: float  # observed
    simulated: float  # of the same
    predicted: float
    after: float  # observed, from the order on
    abstained: str
    took_s: float
    requests: int

    @property
    def right(self) -> bool:
        return not self.abstained and abs(self.predicted - self.after) <= WITHIN


@contextmanager
def running(data_dir: Path, first: PlanChange) -> Iterator[None]:
    """Starts `hmas up --plan` under `data_dir`, and removes what lay there. Raises RuntimeError if that fails."""
    plan, catalogue = emptied(data_dir) / "first.yaml", data_dir / "types.yaml"
    plan.write_text(rendered_plan([plan_of(first.before)]))
    catalogue.write_text(render_catalogue(CATALOGUE))
    with running_mesh(data_dir, "--plan", str(plan), "--catalogue", str(catalogue), "--gpus", CARDS):
        yield


def compute(change: PlanChange, data_dir: Path = MESH) -> Figures:
    """Makes one change on the mesh that runs under `data_dir`. Raises RuntimeError if a command fails."""
    folder = data_dir / f"change-{change.key()}"
    folder.mkdir(parents=True, exist_ok=True)
    before, after = folder / "before.yaml", folder / "after.yaml"
    before.write_text(rendered_plan([plan_of(change.before)]))
    after.write_text(rendered_plan([plan_of(change.after)]))
    _apply(data_dir, before)
    _settled(data_dir)
    began_s = time.monotonic()
    with _offered(change, data_dir, folder / "load-before"):
        pass
    types = ("--plan", str(after), "--catalogue", str(data_dir / "types.yaml"))
    told = _whatif(data_dir, began_s, *types)
    _apply(data_dir, after)
    began_s = time.monotonic()
    with _offered(change, data_dir, folder / "load-after"):
        took_s = _settled(data_dir)
    came = _whatif(data_dir, began_s)
    return {
        "run": change.name, "requests": told["observed"]["requests"], "before": told["observed"]["on_time"],
        "simulated": told["in_force"]["on_time"], "after": came["observed"]["on_time"], "abstained": told["abstains"],
        "predicted": told["observed"]["on_time"] + told["candidates"][0]["gain"], "took_s": round(took_s, 1),
    }  # fmt: skip


def _apply(data_dir: Path, plan: Path) -> None:
    """Applies a plan, and returns once the engines that may be used have changed, or are those of the plan already."""
    named = PlanFolder(Path(read_state(data_dir).plan_folder)).engines(1)
    before = named.read_text()
    steps = ordered(data_dir, "plan", "apply", str(plan))
    until_s = time.monotonic() + SETTLED_S
    while "nothing is left" not in steps and named.read_text() == before:
        if time.monotonic() > until_s:
            raise RuntimeError(f"no step towards {plan} was taken in {SETTLED_S:g} s")
        time.sleep(0.1)


def _settled(data_dir: Path) -> float:
    """Waits until the engines are those of the plan, and returns for how long."""
    began_s = time.monotonic()
    while "nothing is left" not in (told := ordered(data_dir, "plan", "show")):
        if time.monotonic() - began_s > SETTLED_S:
            raise RuntimeError(f"the engines are not those of the plan after {SETTLED_S:g} s:\n{told}")
    return time.monotonic() - began_s


def _offered(change: PlanChange, data_dir: Path, out: Path) -> AbstractContextManager[None]:
    return offered(data_dir, out, change.kind, change.rate, change.seed, change.seconds)


def _whatif(data_dir: Path, began_s: float, *options: str) -> dict[str, Any]:
    last_s = time.monotonic() - began_s + HEAR_S
    return dict(json.loads(ordered(data_dir, "whatif", "--last", f"{last_s:.0f}s", *options, "--json")))


def goals(outcomes: Sequence[ChangeOutcome]) -> list[Goal]:
    """Judges all changes together; None: some are still to be made."""
    whole, right = len(outcomes) == len(planned_changes(0)), sum(each.right for each in outcomes)
    abstained = sum(bool(each.abstained) for each in outcomes)
    asked = f"foretold within {100 * WITHIN:g} points in at least {RIGHT} of {len(planned_changes(0))}"
    return [Goal(asked, f"{right}, abstained in {abstained}", right >= RIGHT if whole else None)]


def cells(options: Options, found: Finished) -> Iterator[Sequence[PlanChange]]:
    """Yields the changes, while the mesh runs."""
    todo = [each for each in planned_changes(int(options.seconds)) if found.get(each) is None]
    if todo:
        with running(MESH, todo[0]):
            yield todo


def rows_of(options: Options, found: Finished) -> list[ChangeOutcome]:
    """Returns the changes that were made; if there are none, those that lie in `options.out`."""
    runs = [run for each in planned_changes(int(options.seconds)) if (run := found.get(each)) is not None]
    names = ChangeOutcome.__dataclass_fields__
    made = [ChangeOutcome(**{name: run[name] for name in names}) for run in runs]
    return made or written(ChangeOutcome, options.out / "plan-changes.json")


def page_of(outcomes: Sequence[ChangeOutcome], options: Options, found: Finished) -> dict[str, object]:
    return {
        "seconds": int(options.seconds), "planned": len(planned_changes(0)), "start_s": TP1.start_s,
        "rows": [
            (
                each.run, str(each.requests), f"{each.before:.3f}", f"{each.simulated:.3f}", f"{each.predicted:.3f}",
                f"{each.after:.3f}", f"{100 * (each.predicted - each.after):+.1f}", f"{each.took_s:.0f}",
                each.abstained,
            )
            for each in outcomes
        ],
    }  # fmt: skip


STUDY = Study(
    name="plan-changes",
    about="Makes changes of the engines on a running emulated mesh, and compares what `hmas whatif --plan` had "
    "foretold. A change takes about three minutes.",
    takes=("out", "seconds", "cells", "pages_only"),
    defaults=Options(seconds=60, cells=Path("out/plan-changes")),
    cells=cells,
    compute=compute,
    code=code_of_mesh,
    rows=rows_of,
    goals=goals,
    values=page_of,
)
