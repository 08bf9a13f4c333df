"""Makes the pages of Figures 2a, 11 and 13 of H-MAS, which show its data and no system: lengths by task type, prompt
lengths over time, and the SLOs of the task types. The paper prints no values there, so each page checks what the paper
says of its figure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import numpy as np
from numpy.typing import NDArray

from experiments.pages.template import percent, render
from experiments.report.figure2a import figure2a
from experiments.report.figures import heatmaps, scatter
from experiments.report.markdown import verdict
from experiments.report.statistics import TRACES
from experiments.study import Options, Study
from hmas.contracts.request import TaskType
from hmas.laws.slo import SLO_BASE_MS
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.sources import WorkloadSpec, build
from hmas_loadgen.slo import TASK_LENGTHS, TASKS
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace
from hmas_loadgen.traces.statistics import LONG_TOKENS
from hmas_loadgen.workloads.published import MEAN_RPS, published_trace

INTERVAL_S, PAPERS_INTERVAL_S = 120.0, 600.0
GENERATED_S = 2640.0  # about as long as the recorded traces
EDGES = tuple(2**k for k in range(5, 18))  # of the bins of prompt lengths, tokens
SHUFFLES, CHANCE = 200, 0.95
INTERACTIVE = (TaskType.QA, TaskType.DIALOGUE, TaskType.TRANSLATION)
LONG = (
    TaskType.MATH_REASONING, TaskType.ESSAY_GENERATION, TaskType.LONG_FORM_GENERATION,
    TaskType.RESEARCH_AND_COMMUNICATION,
)  # fmt: skip
RATE_RPS, SECONDS = 10.0, 300.0  # of the requests in Figure 13
DRAWN = 1000  # points in the picture
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def pages_of(data: Path | None, seeds: Sequence[int], out: Path) -> dict[str, str]:
    """Returns the pages by the names of their files, and draws their pictures into `out`. `data` is the folder of
    traces and prompts; what is missing is shown as not measured. Generated requests are drawn with `seeds`."""
    return {
        "figure2a.md": figure2a(data, out),
        "figure11.md": figure11(data, seeds, out),
        "figure13.md": figure13(seeds, out),
    }


# --- Figure 11


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """How prompt lengths change from one interval to the next. `mode` is the bin that is the fullest of most intervals,
    and `mode_share` its share of them. `least` and `most` are the shares of prompts above `LONG_TOKENS` in an interval.
    The `chance_` fields are what the same requests in random order stay within in `CHANCE` of the orders: at least this
    share of the intervals, and at most this swing."""

    mode: int
    mode_share: float
    chance_share: float
    least: float
    most: float
    chance_swing: float

    @property
    def swing(self) -> float:
        return self.most - self.least

    @property
    def dominant_moves(self) -> bool:
        return self.mode_share < self.chance_share

    @property
    def mass_moves(self) -> bool:
        return self.swing > self.chance_swing


def drift_of(trace: Trace, interval_s: float) -> Drift:
    """Returns the drift of a trace of at least one whole interval; what follows the last whole one is left out."""
    number, tokens = intervals(trace, interval_s)
    modes, shares = _modes(number, tokens), _long_shares(number, tokens)
    rng = np.random.default_rng(11)
    shuffled = [rng.permutation(tokens) for _ in range(SHUFFLES)]
    return Drift(
        mode=int(np.bincount(modes).argmax()),
        mode_share=_commonest(modes),
        chance_share=float(np.quantile([_commonest(_modes(number, each)) for each in shuffled], 1.0 - CHANCE)),
        least=float(shares.min()),
        most=float(shares.max()),
        chance_swing=float(np.quantile([np.ptp(_long_shares(number, each)) for each in shuffled], CHANCE)),
    )


def intervals(trace: Trace, interval_s: float) -> tuple[Ints, Ints]:
    """Returns the number of the interval and the prompt's tokens of each request in whole intervals."""
    arrivals = np.array([row.arrival_s for row in trace.rows])
    number = (arrivals // interval_s).astype(np.int64)
    inside = number < int(trace.duration_s // interval_s)
    return number[inside], np.array([row.input_tokens for row in trace.rows])[inside]


def _counts(number: Ints, tokens: Ints) -> Floats:
    """Returns the requests of each bin of lengths (rows) in each interval (columns). Shorter and longer prompts count
    in the first and last bin."""
    bins = np.clip(np.searchsorted(EDGES, tokens, side="right") - 1, 0, len(EDGES) - 2)
    columns = int(number.max()) + 1
    found = np.bincount(bins * columns + number, minlength=(len(EDGES) - 1) * columns)
    return found.reshape(-1, columns).astype(np.float64)


def _modes(number: Ints, tokens: Ints) -> Ints:
    """Returns the fullest bin of each interval that has requests."""
    counts = _counts(number, tokens)
    found: Ints = counts[:, counts.sum(axis=0) > 0].argmax(axis=0)
    return found


def _commonest(modes: Ints) -> float:
    return float(np.bincount(modes).max() / len(modes))


def _long_shares(number: Ints, tokens: Ints) -> Floats:
    requests = np.bincount(number)
    longs = np.bincount(number, weights=tokens > LONG_TOKENS, minlength=len(requests))
    found: Floats = longs[requests > 0] / requests[requests > 0]
    return found


def figure11(data: Path | None, seeds: Sequence[int], out: Path) -> str:
    """Returns the page of Figure 11: the distribution of prompt lengths over time."""
    traces: dict[str, Trace | None] = {}
    for name in TRACES:
        path = data / name if data is not None else None
        traces[Path(name).name.split(".")[0]] = read_trace(path) if path is not None and path.exists() else None
    for seed in seeds:
        traces[f"azure-like, generated, seed {seed}"] = published_trace(MEAN_RPS, GENERATED_S, seed)
    rows: list[tuple[str, ...]] = []
    claims, panels = "", {}
    for name, trace in traces.items():
        if trace is None:
            rows.append((name, *("not measured",) * 7))
            claims += verdict(_claim(name), None, "the trace is not there")
            continue
        counts = _counts(*intervals(trace, INTERVAL_S))
        panels[name] = (counts / np.maximum(1.0, counts.sum(axis=0))).tolist()
        drift, coarse = drift_of(trace, INTERVAL_S), drift_of(trace, PAPERS_INTERVAL_S)
        rows.append(
            (
                name,
                str(len(trace.rows)),
                f"{trace.duration_s / 60.0:.0f}",
                f"{EDGES[drift.mode]} to {EDGES[drift.mode + 1]}",
                f"{drift.mode_share:.3f} ({drift.chance_share:.3f})",
                f"{drift.least:.3f} to {drift.most:.3f}",
                f"{drift.swing:.3f} ({drift.chance_swing:.3f})",
                f"{coarse.swing:.3f} ({coarse.chance_swing:.3f})",
            )
        )
        claims += verdict(_claim(name), drift.dominant_moves and drift.mass_moves, _drift_numbers(drift))
    picture = heatmaps(
        out / "figures" / "figure11.svg", panels, [f"{edge}" for edge in EDGES[:-1]], f"intervals of {INTERVAL_S:g} s"
    )
    return render(
        Path(__file__).with_name("figure11.md.j2"),
        picture=picture,
        claims=claims,
        rows=rows,
        seeds=len(seeds),
        interval_s=INTERVAL_S,
        papers_interval_s=PAPERS_INTERVAL_S,
        shuffles=SHUFFLES,
        chance=CHANCE,
        long_tokens=LONG_TOKENS,
        longest_min=max(
            (t.duration_s / 60.0 for n, t in traces.items() if t is not None and "seed" not in n), default=0
        ),
    )


def _claim(name: str) -> str:
    return f"{name}: the dominant lengths and the share of long prompts both change beyond chance"


def _drift_numbers(drift: Drift) -> str:
    what = {(True, True): "both do", (False, True): "only the share of long prompts does",
            (True, False): "only the dominant lengths do", (False, False): "neither does"}  # fmt: skip
    found = what[drift.dominant_moves, drift.mass_moves]
    return (
        f"{found}. The commonest dominant bin has {drift.mode_share:.3f} of the intervals, by chance at least "
        f"{drift.chance_share:.3f}; the swing is {drift.swing:.3f}, by chance at most {drift.chance_swing:.3f}"
    )


# --- Figure 13


def figure13(seeds: Sequence[int], out: Path) -> str:
    """Returns the page of Figure 13: the SLOs of requests by task type."""
    spec = WorkloadSpec(kind="mix", duration_s=SECONDS, stated=True)
    by_seed = [build(spec, RATE_RPS, seed).requests for seed in seeds]
    everything = [offered for requests in by_seed for offered in requests]
    groups = {}
    for task in TASKS:
        of_task = [each for each in by_seed[0][:DRAWN] if each.task is task]
        groups[task.value] = [each.slo.ttft_s for each in of_task], [1000.0 * each.slo.tpot_s for each in of_task]
    picture = scatter(out / "figures" / "figure13.svg", groups, "TTFT SLO, s", "TPOT SLO, ms")
    short = [_within(requests, INTERACTIVE, low=True) for requests in by_seed]
    lax = [_within(requests, LONG, low=False) for requests in by_seed]
    claims = verdict(
        f"Interactive requests ({_names(INTERACTIVE)}) concentrate at low TTFT and low TPOT",
        min(short) > 0.5,
        f"{_shares(short)} of them are below the median of both, by seed",
    )
    claims += verdict(
        f"Long-form and reasoning-heavy ones ({_names(LONG)}) have laxer targets",
        min(lax) > 0.5,
        f"{_shares(lax)} of them are above the median of both, by seed",
    )
    rises = [
        rank_correlation([r.slo.tpot_s for r in requests], [float(r.output_tokens) for r in requests])
        for requests in by_seed
    ]
    claims += verdict("Ours: lax targets go with long answers in every type", not out_of_order(), _order_numbers(rises))
    return render(
        Path(__file__).with_name("figure13.md.j2"),
        picture=picture,
        claims=claims,
        rows=[_task_row(task, [each for each in everything if each.task is task]) for task in TASKS],
        seeds=len(seeds),
        rate_rps=RATE_RPS,
        seconds=SECONDS,
        requests=len(everything),
        drawn=min(DRAWN, len(by_seed[0])),
    )


def _within(requests: Sequence[OfferedRequest], tasks: Sequence[TaskType], *, low: bool) -> float:
    """Returns the share of the requests of these types that have both SLOs below the medians, or above them."""
    ttft_s, tpot_s = median(r.slo.ttft_s for r in requests), median(r.slo.tpot_s for r in requests)
    found = [r.slo for r in requests if r.task in tasks]
    inside = (
        slo.ttft_s < ttft_s and slo.tpot_s < tpot_s if low else slo.ttft_s > ttft_s and slo.tpot_s > tpot_s
        for slo in found
    )
    return fmean(inside)


def rank_correlation(x: Sequence[float], y: Sequence[float]) -> float:
    """Returns Spearman's rank correlation; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(x), _ranks(y))[0, 1])


def _ranks(values: Sequence[float]) -> Floats:
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[place]
    return ranks


def out_of_order() -> Mapping[TaskType, str]:
    """Returns the task types whose base TPOT SLO is on one side of the types' median and whose median answer is on the
    other, each with the two."""
    slos = {task: SLO_BASE_MS[task][1] for task in TASKS}
    answers = {task: TASK_LENGTHS[task].output_p50 for task in TASKS}
    middle_ms, middle_tokens = median(slos.values()), median(answers.values())
    return {
        task: f"{slos[task]} ms and {answers[task]:g} tokens"
        for task in TASKS
        if (slos[task] - middle_ms) * (answers[task] - middle_tokens) < 0.0
    }


def _order_numbers(rises: Sequence[float]) -> str:
    apart = "; ".join(f"{task.value} {what}" for task, what in out_of_order().items()) or "none"
    return f"rank correlation of requests {', '.join(f'{each:.2f}' for each in rises)} by seed; against it: {apart}"


def _task_row(task: TaskType, requests: Sequence[OfferedRequest]) -> tuple[str, ...]:
    ttft_s, tpot_ms = [r.slo.ttft_s for r in requests], [1000.0 * r.slo.tpot_s for r in requests]
    prompts, answers = median(r.request.prompt_tokens for r in requests), median(r.output_tokens for r in requests)
    return (
        task.value, str(len(requests)), f"{min(ttft_s):.1f} to {max(ttft_s):.1f}",
        f"{min(tpot_ms):.0f} to {max(tpot_ms):.0f}", f"{prompts:.0f}", f"{answers:.0f}",
    )  # fmt: skip


def _names(tasks: Sequence[TaskType]) -> str:
    return ", ".join(task.value for task in tasks)


def _shares(values: Sequence[float]) -> str:
    return ", ".join(percent(value) for value in values)


STUDY: Study[None, None] = Study(
    name="data-figures",
    about="Shows the data of H-MAS's Figures 2a, 11 and 13 and no system: lengths by type, prompt lengths over time, "
    "and the SLOs of the task types. Without --data, no recorded traces are shown.",
    takes=("out", "seeds", "data"),
    defaults=Options(seeds=2),
    also=lambda rows, options, found: pages_of(options.data, options.numbers, options.out),
)
