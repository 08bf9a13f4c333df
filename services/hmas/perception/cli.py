"""`hmas train perception`, `hmas eval perception`, `hmas train generative`: mounted by the `hmas` command."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

train = typer.Typer(help="Train perception's models", no_args_is_help=True)
evaluate = typer.Typer(help="Evaluate perception's models", no_args_is_help=True)
Data = Annotated[
    Path, typer.Option(envvar="HMAS_DATA", help="folder with prompts/*.jsonl.gz", exists=True, file_okay=False)
]
ARTEFACTS = Path(__file__).with_name("artefacts")  # the libraries behind them load only when needed
Folder = Annotated[Path, typer.Option(help="folder of the artefacts")]
Seed = Annotated[int, typer.Option(help="fixes split, order and initial weights")]
Threads = Annotated[int, typer.Option(min=1, help="CPU threads")]
console = Console(stderr=True)


@train.command("perception")
def train_perception(
    data: Data = Path("data"),
    out: Folder = ARTEFACTS,
    seed: Seed = 0,
    threads: Threads = 1,
    held_out: Annotated[bool, typer.Option(help="also leave out each source in turn (some 30 more runs)")] = False,
) -> None:
    """Trains the tagger and writes perception.onnx and tokenizer.json. Needs the extra `train`."""
    import torch

    from hmas.perception.training.held_out import measure
    from hmas.perception.training.loop import TrainingRecipe
    from hmas.perception.training.train import train as run

    torch.set_num_threads(threads)
    recipe = replace(TrainingRecipe(), seed=seed)
    run(data, out, recipe, f"hmas train perception --data {data.name} --seed {seed}", console.print, threads)
    if held_out:
        measure(data, out, recipe, console.print, threads)


@train.command("generative")
def train_generative(
    base: Annotated[str, typer.Option(help="causal LM to tune: a local folder or a model name")],
    data: Data = Path("data"),
    out: Folder = Path("out/generative"),
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(min=1, help="optimizer steps in all")] = 2000,
    resume: Annotated[bool, typer.Option(help="go on from the last checkpoint in --out")] = False,
) -> None:
    """Tunes LoRA weights of a causal LM to emit task type, SLOs and output length. Needs the extra `train`."""
    from hmas.perception.training.lora import LoraRecipe, tune

    tune(base, data, out, LoraRecipe(seed=seed, steps=steps), resume, console.print)


@evaluate.command("perception")
def eval_perception(
    data: Annotated[list[Path], typer.Option(help="prompt files in the format of data/prompts; repeat it")],
    folder: Folder = ARTEFACTS,
    unseen: Annotated[bool, typer.Option(help="only prompt ids that training never saw")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON")] = False,
) -> None:
    """Task-type and length figures of the shipped model on any file in the format of data/prompts."""
    from hmas.perception.backends.model import ModelBackend
    from hmas.perception.evaluation import evaluate_length, evaluate_task
    from hmas.perception.training.corpus import read_prompts, split

    backend = ModelBackend(folder)
    try:
        prompts = read_prompts(data)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    if unseen:
        prompts = split(prompts, backend.metadata["recipe"]["seed"])["test"]
    figures: dict[str, Any] = {"version": backend.version, "prompts": len(prompts)}
    if any(prompt.task for prompt in prompts):
        figures["task"] = asdict(evaluate_task(backend, prompts))
    if any(prompt.answers for prompt in prompts):
        figures["length"] = {
            "model_unknown": asdict(evaluate_length(backend, prompts, model_known=False)),
            "model_known": asdict(evaluate_length(backend, prompts, model_known=True)),
        }
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
    else:
        Console().print(figure_table(figures))


def figure_table(figures: dict[str, Any], prefix: str = "") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in _flat(figures, prefix):
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def _flat(figures: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in figures.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows
