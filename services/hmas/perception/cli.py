"""`hmas train perception`, `hmas eval perception`, `hmas train generative`: mounted by the `hmas` command."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

train = typer.Typer(help="Train perception's models.", no_args_is_help=True)
evaluate = typer.Typer(help="Evaluate perception's models.", no_args_is_help=True)
Data = Annotated[
    Path, typer.Option(envvar="HMAS_DATA", help="Folder that holds prompts/*.jsonl.gz.", exists=True, file_okay=False)
]
ARTEFACTS = Path(__file__).with_name("artefacts")  # here, so that the libraries behind them load only when needed
Folder = Annotated[Path, typer.Option(help="Folder of the model's files.")]
Seed = Annotated[int, typer.Option(help="Random seed of the split, the order of examples and the initial weights.")]
Threads = Annotated[int, typer.Option(min=1, help="Number of CPU threads.")]
console = Console(stderr=True)


@train.command("perception")
def train_perception(
    data: Data = Path("data"),
    out: Folder = ARTEFACTS,
    seed: Seed = 0,
    threads: Threads = 1,
    held_out: Annotated[
        bool, typer.Option(help="Also train without each source in turn (about 30 more runs).")
    ] = False,
) -> None:
    """Trains the model that tags requests; writes perception.onnx and tokenizer.json. Needs the extra `train`."""
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
    base: Annotated[str, typer.Option(help="Causal language model to tune: a local folder or a model's name.")],
    data: Data = Path("data"),
    out: Folder = Path("out/generative"),
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(min=1, help="Number of optimizer steps in all.")] = 2000,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in --out.")] = False,
) -> None:
    """Tunes LoRA weights so that a causal language model writes the task type, the SLOs and the output length of a
    prompt. Needs the extra `train`."""
    from hmas.perception.training.lora import LoraRecipe, tune

    tune(base, data, out, LoraRecipe(seed=seed, steps=steps), resume, console.print)


@evaluate.command("perception")
def eval_perception(
    data: Annotated[
        list[Path], typer.Option(help="File of prompts in the format of data/prompts; repeat it for more.")
    ],
    folder: Folder = ARTEFACTS,
    unseen: Annotated[bool, typer.Option(help="Use only prompts that training never saw.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prints how well the model predicts task types and output lengths for any files in the format of data/prompts."""
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
