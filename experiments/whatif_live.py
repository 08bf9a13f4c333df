"""Does `hmas whatif` foretell what a switch brings? Varied loads on an emulated mesh in real time: traffic under one
topology, a prediction for another one, the switch, and the same traffic again."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from experiments.live.running_mesh import HEAR_S, emptied, offered, ordered, running_mesh
from experiments.pages.goal import Goal
from experiments.study import Figures, Finished, Options, Study, code_of_mesh, written
from hmas.contracts.control import TopologyName
from hmas.engine.core.profile import builtin_profile
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import read_state
from hmas.sim.past.fitted import CHUNK_TOKENS
from hmas_lab.sim.stored import cell_key

WITHIN, MOVING = 0.05, 0.05  # a prediction is right within so much; a switch that moves the share by so much counts
RIGHT, MOVED = 18, 10
TOKEN_BUDGET = builtin_profile(MeshOptions().profile).limits.max_num_batched_tokens  # as an operator knows his engines'
MESH = Path("out/whatif-live/mesh")
T = TopologyName


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSwitch:
    """One switch: `seconds` of traffic of a `kind` at `rate` requests/s under `before`, then under `after`."""

    kind: str
    rate: float
    before: TopologyName
    after: TopologyName
    seed: int
    seconds: int = 60

    def key(self) -> str:
        return cell_key(self)

    @property
    def name(self) -> str:
        return f"{self.kind} at {self.rate:g}/s, {self.before} to {self.after}, seed {self.seed}"


def plans(seconds: int = 60) -> tuple[LiveSwitch, ...]:
    """Twenty switches, fixed before the first was run: two kinds of traffic, from light load to gross overload of two
    `tiny-emulated` engines, to and from the orders that differ most."""
    pairs = ((T.FCFS, T.MAX_ON_TIME), (T.MAX_ON_TIME, T.EDF), (T.FCFS, T.SJF), (T.SJF, T.FCFS), (T.EDF, T.MAX_ON_TIME))
    loads = (("burst", 7.0), ("burst", 10.0), ("azure-like", 8.0), ("azure-like", 12.0))
    return tuple(
        LiveSwitch(kind=kind, rate=rate, before=before, after=after, seed=1 + i, seconds=seconds)
        for i, (kind, rate) in enumerate(loads)
        for before, after in pairs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """What came of one switch, as shares on time. `abstained` says why the prediction was not to be believed, or is
    empty; `unstated` and `unstated_abstained` are the same, where nobody states the engines' token budget."""

    run: str
    before: float  # observed
    simulated: float  # of the same
    predicted: float
    after: float  # observed
    abstained: str
    unstated: float
    unstated_abstained: str
    requests: int

    @property
    def right(self) -> bool:
        return abs(self.predicted - self.after) <= WITHIN

    @property
    def moves(self) -> bool:
        return abs(self.after - self.before) >= MOVING


@contextmanager
def running(data_dir: Path) -> Iterator[None]:
    """Starts `hmas up` under `data_dir`, and removes what lay there. Raises RuntimeError if it does not start."""
    with running_mesh(emptied(data_dir), "--emulated", "2"):
        # `hmas whatif` would simulate emulated engines by their own costs; of real ones it knows their pace alone.
        replace(read_state(data_dir), profile="").write(data_dir)
        yield


def compute(run: LiveSwitch, data_dir: Path = MESH) -> Figures:
    """Makes one switch on the mesh that runs under `data_dir`. Raises RuntimeError if a command fails."""
    out = data_dir / f"load-{run.key()}"
    switch = "--topology", run.after.value
    stated = *switch, "--max-num-batched-tokens", str(TOKEN_BUDGET)
    told, unstated = _under(run.before, run, data_dir, out / "before", stated, switch)
    (came,) = _under(run.after, run, data_dir, out / "after", ())
    return {
        "run": run.name, "requests": told["observed"]["requests"],
        "before": told["observed"]["on_time"], "simulated": told["in_force"]["on_time"],
        "predicted": _predicted(told), "after": came["observed"]["on_time"], "abstained": told["abstains"],
        "unstated": _predicted(unstated), "unstated_abstained": unstated["abstains"],
    }  # fmt: skip


def _predicted(told: dict[str, Any]) -> float:
    """Returns what was observed plus the gain that is predicted of the only candidate, 0 if there is none."""
    return float(told["observed"]["on_time"] + sum(each["gain"] for each in told["candidates"]))


def _under(
    topology: TopologyName, run: LiveSwitch, data_dir: Path, out: Path, *asked: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Pins a topology, offers the traffic until the last answer has come, and returns what `hmas whatif` answers to
    each of these options, of all that came since the pin: some orders take much longer for the last answers than
    others."""
    began_s = time.monotonic()
    ordered(data_dir, "pin", topology)
    with offered(data_dir, out, run.kind, run.rate, run.seed, run.seconds):
        pass
    found = []
    for options in asked:
        last_s = time.monotonic() - began_s + HEAR_S
        found.append(dict(json.loads(ordered(data_dir, "whatif", "--last", f"{last_s:.0f}s", *options, "--json"))))
    return found


def counted(outcomes: Iterable[LiveOutcome]) -> dict[str, int]:
    """Returns how many switches were made, were foretold at all, were foretold right (an abstention is not right), and
    moved the share on time."""
    made: Sequence[LiveOutcome] = list(outcomes)
    told = [each for each in made if not each.abstained]
    return {
        "made": len(made),
        "told": len(told),
        "right": sum(each.right for each in told),
        "moves": sum(each.moves for each in made),
    }


def goals(outcomes: Sequence[LiveOutcome]) -> list[Goal]:
    """Judges all switches together; None: some are still to be made."""
    counts, whole = counted(outcomes), len(outcomes) == len(plans())
    return [
        Goal(
            f"foretold within {100 * WITHIN:g} points in at least {RIGHT} of {len(plans())}",
            f"{counts['right']}, abstained in {counts['made'] - counts['told']}",
            counts["right"] >= RIGHT if whole else None,
        ),
        Goal(
            f"the switch moves the share on time by {100 * MOVING:g} points in at least {MOVED}",
            str(counts["moves"]),
            counts["moves"] >= MOVED if whole else None,
        ),
    ]


def repeated(outcomes: Sequence[LiveOutcome]) -> list[float]:
    """Returns how far apart the shares on time are that were observed of the same traffic under the same order, for
    each traffic and order that was observed more than once."""
    switches = {plan.name: plan for plan in plans()}
    seen: dict[tuple[str, str], list[float]] = {}
    for each in outcomes:
        if plan := switches.get(each.run):
            traffic = f"{plan.kind} at {plan.rate:g}/s, seed {plan.seed}"
            seen.setdefault((traffic, plan.before), []).append(each.before)
            seen.setdefault((traffic, plan.after), []).append(each.after)
    return [max(shares) - min(shares) for shares in seen.values() if len(shares) > 1]


def cells(options: Options, found: Finished) -> Iterator[Sequence[LiveSwitch]]:
    """Yields the switches, while the mesh runs."""
    todo = [plan for plan in plans(int(options.seconds)) if found.get(plan) is None]
    if todo:
        with running(MESH):
            yield todo


def rows_of(options: Options, found: Finished) -> list[LiveOutcome]:
    """Returns the switches that were made; if there are none, those that lie in `options.out`."""
    runs = [run for plan in plans(int(options.seconds)) if (run := found.get(plan)) is not None]
    names = LiveOutcome.__dataclass_fields__
    made = [LiveOutcome(**{name: run[name] for name in names}) for run in runs]
    return made or written(LiveOutcome, options.out / "whatif-live.json")


def page_of(outcomes: Sequence[LiveOutcome], options: Options, found: Finished) -> dict[str, object]:
    unstated = [replace(each, predicted=each.unstated, abstained=each.unstated_abstained) for each in outcomes]
    alone = [replace(each, predicted=each.predicted - each.before + each.simulated) for each in outcomes]
    apart = repeated(outcomes)
    return {
        "seconds": int(options.seconds), "planned": len(plans()), "counts": counted(outcomes),
        "budget": TOKEN_BUDGET, "assumed": CHUNK_TOKENS, "within": 100 * WITHIN, "unstated": counted(unstated),
        "alone": counted(alone), "repeated": apart, "usual": median(apart) if apart else 0.0,
        "rows": [
            (
                each.run, str(each.requests), f"{each.before:.3f}", f"{each.simulated:.3f}", f"{each.predicted:.3f}",
                f"{each.after:.3f}", f"{100 * (each.predicted - each.after):+.1f}", each.abstained,
                "abstained" if each.unstated_abstained else f"{100 * (each.unstated - each.after):+.1f}",
            )
            for each in outcomes
        ],
    }  # fmt: skip


STUDY = Study(
    name="whatif-live",
    about="Makes switches of topology on a running emulated mesh, and compares what `hmas whatif` had foretold. A "
    "switch takes about three minutes.",
    takes=("out", "seconds", "cells", "pages_only"),
    defaults=Options(seconds=60, cells=Path("out/whatif-live")),
    cells=cells,
    compute=compute,
    code=code_of_mesh,
    rows=rows_of,
    goals=goals,
    values=page_of,
)
