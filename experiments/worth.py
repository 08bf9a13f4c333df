"""What cognition is worth: the same mesh on the same requests with six states of knowledge, and what it costs that
annotations come late. Pure but for the store of runs."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log1p
from statistics import StatisticsError, correlation, fmean, stdev

from experiments.pages.paired import Paired, paired
from experiments.study import Finished
from hmas.sim.workload import Workload
from hmas_lab.sim.cells import Cell
from hmas_lab.sim.experiment import Experiment

# By name on the page; the last one takes no time, and tells what late annotations cost.
COGNITION = {
    "perfect": "hmas-perfect",
    "shipped": "hmas",
    "rules": "hmas-rules",
    "prior": "hmas-prior",
    "none": "hmas-none",
}
INSTANT = "hmas-instant"
GOAL_CLOSED, GOAL_LOAD = 0.6, 1.4  # without stated SLOs


@dataclass(frozen=True, slots=True, kw_only=True)
class CognitionRow:
    """What the mesh reached with one state of knowledge: means over the seeds, whose goodput rates are `by_seed`.
    `masked` is the share of dispatched requests whose annotation came before, `waited` the share that was not
    dispatched at once, and `waited_masked` the share of these whose annotation came before; `late_masked` is the share
    of those that came in the last third of the window, when the queue of the load has formed."""

    workload: str
    load: float
    stated: bool
    cognition: str
    goodput_rate: float
    esg: float
    masked: float
    waited: float
    waited_masked: float
    late_masked: float
    by_seed: tuple[float, ...]
    commit: str = ""  # whose code computed it


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """How far the shipped models come from the prior towards perfect knowledge. `share` is None where the distance
    between these two is within noise, or the prior ahead."""

    workload: str
    load: float
    stated: bool
    distance: Paired
    gain: Paired
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskedRow:
    """The share of annotations that came before dispatch, of all and of the requests that waited at all, a share
    `waited`, and of those that came in the last third of the window (`late_masked`); and the goodput rate that answers
    without delay would add."""

    workload: str
    load: float
    masked: float
    waited: float
    waited_masked: float
    late_masked: float
    late_cost: Paired
    commit: str = ""  # whose code computed it


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What perception says of the prompts of one workload. `accuracy`: share of right task types. `bias` and `sd`: mean
    and standard deviation of log(predicted / true length). `r2`: share of the variance of the logarithm of the true
    length that a line through the predicted one explains, all over the requests of the workload; `r2_in_type`: that
    within a task type, so that it is what the text says beyond its type."""

    workload: str
    prompts: int
    accuracy: float
    bias: float
    sd: float
    r2: float
    r2_in_type: float


def cells_of_worth(experiment: Experiment) -> list[Cell]:
    """Returns the runs of the experiment. Those without delay are made only where no SLO is stated."""
    return [
        Cell(
            kind="run",
            profile=experiment.profile,
            engines=experiment.engines,
            workload=spec,
            load=load,
            seed=seed,
            system=system,
            chunk_tokens=experiment.chunk_tokens,
        )
        for spec in experiment.workloads
        for load in experiment.loads
        for seed in experiment.seeds
        for system in experiment.systems
        if system != INSTANT or not spec.stated
    ]


def batches_of_worth(experiment: Experiment) -> list[list[Cell]]:
    """Returns the same runs in batches, those that the goal is about first, so that an interrupted experiment has all
    seeds of some settings."""
    batches: dict[tuple[bool, float], list[Cell]] = {}
    for cell in cells_of_worth(experiment):
        batches.setdefault((cell.workload.stated, cell.load), []).append(cell)
    return [batches[key] for key in sorted(batches, key=lambda key: (key[0], key[1] != GOAL_LOAD, -key[1]))]


def rows_of(experiment: Experiment, store: Finished, commit: str) -> tuple[list[CognitionRow], list[str], float]:
    """Returns the rows of all finished runs, computed by the code of `commit`, the runs that are missing, and the CPU
    seconds that the runs took."""
    found: dict[tuple[str, float, bool, str], list[dict[str, float]]] = {}
    names = {system: name for name, system in COGNITION.items()} | {INSTANT: "instant"}
    missing, cpu_s = [], 0.0
    for cell in cells_of_worth(experiment):
        run = store.get(cell)
        if run is None:
            missing.append(f"{cell.workload.name} {cell.load:g} {cell.system} seed {cell.seed}")
            continue
        cpu_s += run["cpu_s"]
        key = (cell.workload.name, cell.load, cell.workload.stated, names[cell.system])
        figures = {"goodput_rate": run["score"]["goodput_rate"], "esg": run["score"]["esg_rate"]}
        found.setdefault(key, []).append(figures | _shares(run["run"]))
    rows = [
        CognitionRow(
            workload=key[0],
            load=key[1],
            stated=key[2],
            cognition=key[3],
            goodput_rate=fmean(run["goodput_rate"] for run in runs),
            esg=fmean(run["esg"] for run in runs),
            masked=fmean(run["masked"] for run in runs),
            waited=fmean(run["waited"] for run in runs),
            waited_masked=fmean(run["waited_masked"] for run in runs),
            late_masked=fmean(run["late_masked"] for run in runs),
            by_seed=tuple(run["goodput_rate"] for run in runs),
            commit=commit,
        )
        for key, runs in found.items()
    ]
    return rows, missing, cpu_s


def _shares(run: dict[str, int]) -> dict[str, float]:
    granted, waited = max(1, run["granted"]), max(1, run["waited"])
    shares = {"masked": run["masked"] / granted, "waited": run["waited"] / granted}
    late_masked = run["late_masked"] / max(1, run["late_granted"])
    return shares | {"waited_masked": run["waited_masked"] / waited, "late_masked": late_masked}


def by_setting(rows: Sequence[CognitionRow]) -> dict[tuple[str, float, bool], dict[str, CognitionRow]]:
    """Returns the rows by workload, load and whether SLOs are stated, and by the state of knowledge."""
    found: dict[tuple[str, float, bool], dict[str, CognitionRow]] = {}
    for row in rows:
        found.setdefault((row.workload, row.load, row.stated), {})[row.cognition] = row
    return found


def closings(rows: Sequence[CognitionRow]) -> list[Closing]:
    result = []
    for (workload, load, stated), named in by_setting(rows).items():
        if not {"perfect", "shipped", "prior"} <= named.keys():
            continue
        perfect, shipped, prior = (named[name].by_seed for name in ("perfect", "shipped", "prior"))
        if not len(perfect) == len(shipped) == len(prior) > 1:
            continue
        distance, gain = paired(perfect, prior), paired(shipped, prior)
        share = None if distance.noise or distance.mean < 0.0 else gain.mean / distance.mean
        result.append(Closing(workload=workload, load=load, stated=stated, distance=distance, gain=gain, share=share))
    return result


def masking(rows: Sequence[CognitionRow]) -> list[MaskedRow]:
    return [
        MaskedRow(
            workload=workload,
            load=load,
            masked=named["shipped"].masked,
            waited=named["shipped"].waited,
            waited_masked=named["shipped"].waited_masked,
            late_masked=named["shipped"].late_masked,
            late_cost=paired(named["instant"].by_seed, named["shipped"].by_seed),
            commit=named["shipped"].commit,
        )
        for (workload, load, stated), named in by_setting(rows).items()
        if not stated and {"shipped", "instant"} <= named.keys()
        if len(named["instant"].by_seed) == len(named["shipped"].by_seed) > 1
    ]


def knowledge(workload: Workload) -> Knowledge:
    """Compares what perception says of a workload's prompts with the truth."""
    read = [(r, r.recorded) for r in workload.requests if r.recorded is not None]
    true = [log1p(r.output_tokens) for r, _ in read]
    said = [log1p(tokens) for _, (_, _, tokens, _) in read]
    types = [r.task for r, _ in read]
    errors = [s - t for s, t in zip(said, true, strict=True)]
    return Knowledge(
        workload=workload.name,
        prompts=len(read),
        accuracy=fmean(task is r.task for r, (task, *_) in read),
        bias=fmean(errors),
        sd=stdev(errors),
        r2=_r2(said, true),
        r2_in_type=_r2(_centred(said, types), _centred(true, types)),
    )


def _centred(values: Sequence[float], types: Sequence[object]) -> list[float]:
    by_type: dict[object, list[float]] = {}
    for x, kind in zip(values, types, strict=True):
        by_type.setdefault(kind, []).append(x)
    means = {kind: fmean(found) for kind, found in by_type.items()}
    return [x - means[kind] for x, kind in zip(values, types, strict=True)]


def _r2(a: Sequence[float], b: Sequence[float]) -> float:
    try:
        return correlation(a, b) ** 2
    except StatisticsError:
        return 0.0  # one of them is constant


def plain(row: CognitionRow | MaskedRow) -> dict[str, object]:
    """Returns a row as plain data with rounded numbers."""
    return {name: _rounded(x) for name, x in asdict(row).items()}


def _rounded(x: object) -> object:
    if isinstance(x, float):
        return round(x, 4)
    if isinstance(x, dict):
        return {name: _rounded(part) for name, part in x.items()}
    return [_rounded(part) for part in x] if isinstance(x, tuple) else x
