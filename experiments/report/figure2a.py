"""Makes the page of Figure 2a of H-MAS: prompt and answer lengths by task type."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from experiments.pages.template import render
from experiments.report.figures import scatter
from experiments.report.markdown import verdict
from hmas.contracts.request import TaskType
from hmas_lab.perception.training.corpus import Prompt, prompt_files, read_prompts
from hmas_loadgen.slo import TASKS

DRAWN = 150  # points of each type in the picture
SHUFFLES, CHANCE = 200, 0.95
Lengths = tuple[int, float]  # a prompt's tokens, and the median of its answers'


def figure2a(data: Path | None, out: Path) -> str:
    """Returns the page. `data` is the folder with the labelled prompts; without them nothing is shown as measured."""
    prompts = _prompts(data)
    lengths = by_type(prompts)
    claims, rows, picture = "", [], ""
    for name, column in (("prompts", 0), ("answers", 1)):
        found = [np.log2([max(1.0, each[column]) for each in of_type]) for of_type in lengths.values()]
        share, chance = (explained(found), by_chance(found)) if found else (0.0, 0.0)
        told = f"{100 * share:.0f} % of the variance of their logarithm lies between types, by chance at most"
        claims += verdict(
            f"Task types differ in the lengths of their {name}",
            share > chance if found else None,
            f"{told} {100 * chance:.1f} %" if found else "the prompts are not there",
        )
    if lengths:
        rows = [_row(task, of_type) for task, of_type in lengths.items()]
        groups = {
            task.value: ([float(each[0]) for each in of_type[:DRAWN]], [max(1.0, each[1]) for each in of_type[:DRAWN]])
            for task, of_type in lengths.items()
        }
        picture = scatter(
            out / "figures" / "figure2a.svg", groups, "prompt, tokens", "answer, tokens", logarithmic=True
        )
    return render(
        Path(__file__).with_name("figure2a.md.j2"),
        picture=picture,
        claims=claims,
        rows=rows,
        prompts=sum(map(len, lengths.values())),
        sources=len({prompt.source for prompt in prompts if prompt.task is not None and prompt.answers}),
        drawn=DRAWN,
        shuffles=SHUFFLES,
        chance=CHANCE,
    )


def _prompts(data: Path | None) -> list[Prompt]:
    if data is None:
        return []
    try:
        return read_prompts(prompt_files(data))
    except FileNotFoundError:
        return []


def by_type(prompts: Sequence[Prompt]) -> Mapping[TaskType, list[Lengths]]:
    """Returns the lengths of the prompts with a type and an answer, type by type."""
    found: dict[TaskType, list[Lengths]] = {}
    for task in TASKS:
        of_type = [each for each in prompts if each.task is task and each.answers]
        if of_type:
            found[task] = [(each.tokens, float(median(a.tokens for a in each.answers))) for each in of_type]
    return found


def explained(groups: Sequence[NDArray[np.float64]]) -> float:
    """Returns the share of the variance of all values that lies between the groups (the correlation ratio, squared)."""
    everything = np.concatenate(groups)
    mean, total = everything.mean(), float(((everything - everything.mean()) ** 2).sum())
    between = sum(len(group) * (group.mean() - mean) ** 2 for group in groups)
    return float(between / total) if total > 0.0 else 0.0


def by_chance(groups: Sequence[NDArray[np.float64]]) -> float:
    """Returns the share that types dealt at random stay within in `CHANCE` of the deals."""
    everything, borders = np.concatenate(groups), np.cumsum([len(group) for group in groups])[:-1]
    rng = np.random.default_rng(2)
    dealt = [explained(np.split(rng.permutation(everything), borders)) for _ in range(SHUFFLES)]
    return float(np.quantile(dealt, CHANCE))


def _row(task: TaskType, lengths: Sequence[Lengths]) -> tuple[str, ...]:
    told = (
        ", ".join(f"{q:.0f}" for q in np.quantile([each[i] for each in lengths], (0.25, 0.5, 0.75))) for i in (0, 1)
    )
    return (task.value, str(len(lengths)), *told)
