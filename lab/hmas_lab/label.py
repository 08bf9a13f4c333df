"""`hmas label`: gives the requests of a trace task types from their prompts, as H-MAS App. E.5 labels its workload: by
a script where a prompt's own words name the type, and else by a language model, if one is named."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hmas.contracts.request import TaskType
from hmas.mesh.command import MENDABLE, refuse
from hmas.perception.agent.rules import EXPLICIT, tag
from hmas.perception.backends.generative import Complete, EndpointCompletion, parse, tagging_prompt
from hmas.runtime.extras import needs
from hmas_loadgen.slo import annotate
from hmas_loadgen.traces.native import write_parquet
from hmas_loadgen.traces.reading import read_trace
from hmas_loadgen.traces.row import Trace, TraceRow

BATCH = 256  # prompts that are asked about between two lines of progress
console = Console(stderr=True)


@dataclass(slots=True)
class LabelCounts:
    """How many rows had a type, how many got theirs from the script, from the model, or from a doubtful rule, and how
    many have none: that of these is drawn by the length of the answer. `asked`: about how many the model was asked."""

    kept: int = 0
    script: int = 0
    model: int = 0
    doubtful: int = 0
    drawn: int = 0
    asked: int = 0

    def __str__(self) -> str:
        return (
            f"task types: {self.kept} of the trace's own, {self.script} by the script, {self.model} by the model, "
            f"{self.doubtful} by a rule that is not sure, {self.drawn} drawn by output length"
        )


def labelled(trace: Trace, complete: Complete | None, seed: int) -> tuple[Trace, LabelCounts]:
    """Returns the trace with a task type, an importance and an SLO for each row. `complete` answers tagging prompts;
    without it, or where its answer is none, the script's best guess stands."""
    counts = LabelCounts()
    rows = list(trace.rows)
    guesses: dict[int, TaskType] = {}  # of the rows about which the script is not sure; `unknown` if it has no guess
    for at, row in enumerate(rows):
        task, confidence = tag(row.prompt) if row.prompt else (TaskType.UNKNOWN, 0.0)
        if row.task is not None and row.task is not TaskType.UNKNOWN:
            counts.kept += 1
        elif confidence >= EXPLICIT:
            counts.script += 1
            rows[at] = replace(row, task=task)
        else:
            guesses[at] = task
    told: dict[int, TaskType] = {}
    if complete is not None:
        asked = [at for at in guesses if rows[at].prompt]
        counts.asked = len(asked)
        told = _answers(rows, asked, complete)
    for at, guess in guesses.items():
        if at in told:
            counts.model += 1
            rows[at] = replace(rows[at], task=told[at])
        elif guess is not TaskType.UNKNOWN:
            counts.doubtful += 1
            rows[at] = replace(rows[at], task=guess)
        else:
            counts.drawn += 1
            rows[at] = replace(rows[at], task=None)
    return annotate(trace.derived(rows, str(counts)), seed), counts


def _answers(rows: list[TraceRow], asked: list[int], complete: Complete) -> dict[int, TaskType]:
    """Returns the types that the model answers, by row. After a first batch without one usable answer it is not asked
    any more."""
    labels: dict[int, TaskType] = {}
    for first in range(0, len(asked), BATCH):
        part = asked[first : first + BATCH]
        estimates = map(parse, complete([tagging_prompt(rows[at].prompt or "") for at in part]))
        labels |= {at: each.task for at, each in zip(part, estimates, strict=True) if each is not None}
        console.print(f"asked about {first + len(part)} of {len(asked)}", highlight=False)
        if not labels:
            break
    return labels


def label(
    trace: Annotated[Path, typer.Argument(help="trace file with prompts, in the load generator's CSV or Parquet")],
    out: Annotated[Path, typer.Argument(help="Parquet file to write")],
    llm_url: Annotated[
        str, typer.Option(help="OpenAI endpoint that is asked where the script is not sure, such as http://HOST/v1")
    ] = "",
    llm_model: Annotated[str, typer.Option(help="name of its model")] = "",
    llm_api_key_file: Annotated[Path | None, typer.Option(help="file with its API key", exists=True)] = None,
    llm_timeout: Annotated[float, typer.Option(min=0.1, help="seconds that it may take for one prompt")] = 30.0,
    seed: Annotated[int, typer.Option(help="seed of the importances, and of types drawn by length")] = 0,
) -> None:
    """Label a trace that has prompts: task types by a script and a language model, importance and SLOs (H-MAS App.
    E.5)."""
    try:
        if bool(llm_url) != bool(llm_model):
            raise ValueError("--llm-url and --llm-model belong together: give both or neither")
        found = read_trace(trace)
        if not any(row.prompt for row in found.rows):
            raise ValueError(f"{trace} has no prompts to label: `hmas load annotate` draws task types by length")
        complete = None
        if llm_url:
            with needs("meta"):
                key = llm_api_key_file.read_text().strip() if llm_api_key_file else ""
                complete = EndpointCompletion(llm_url, llm_model, key, llm_timeout)
        try:
            made, counts = labelled(found, complete, seed)
        finally:
            if complete is not None:
                complete.close()
        write_parquet(made, out)
    except MENDABLE as error:
        raise refuse(error) from None
    if counts.asked and not counts.model:
        console.print(f"{llm_url} answered nothing that could be used: the script labelled alone", style="red")
    console.print(f"wrote {len(made.rows)} requests to {out} ({counts})", highlight=False)
