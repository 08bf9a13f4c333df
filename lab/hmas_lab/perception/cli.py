"""`hmas train perception`, `held-out`, `sizes` and `generative`, and `hmas eval perception`: mounted by the `hmas`
command."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import hmas.perception
from hmas_lab.groups import needs_group

train = typer.Typer(help="Train perception's models.", no_args_is_help=True)
evaluate = typer.Typer(help="Evaluate perception's models.", no_args_is_help=True)
Data = Annotated[
    Path, typer.Option(envvar="HMAS_DATA", help="Folder that holds prompts/*.jsonl.gz.", exists=True, file_okay=False)
]
ARTEFACTS = Path(hmas.perception.__file__).with_name("artefacts")  # without their libraries, which take long to load
Folder = Annotated[Path, typer.Option(help="Folder of the model's files.")]
Seed = Annotated[int, typer.Option(help="Random seed of the split, the order of examples and the initial weights.")]
Work = Annotated[Path, typer.Option(help="Folder of checkpoints and of what is measured so far.")]
Threads = Annotated[int, typer.Option(min=1, help="Number of CPU threads.")]
console = Console(stderr=True)


@train.command("perception")
@needs_group("train")
def train_perception(
    data: Data = Path("data"),
    out: Folder = ARTEFACTS,
    work: Work = Path("out/perception"),
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """Trains the model that tags requests, on the GPU if there is one; writes perception.onnx and tokenizer.json. Goes
    on from the last checkpoint in --work. Needs the group `train`."""
    import torch

    from hmas_lab.perception.training.loop import TrainingRecipe
    from hmas_lab.perception.training.train import train as run

    torch.set_num_threads(threads)
    recipe = replace(TrainingRecipe(), seed=seed)
    run(data, out, recipe, f"hmas train perception --data {data.name} --seed {seed}", console.print, work)


@train.command("held-out")
@needs_group("train")
def train_held_out(
    data: Data = Path("data"),
    out: Folder = ARTEFACTS,
    work: Work = Path("out/perception"),
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """Trains perception without each group of sources in turn, and the baseline for lengths; writes held_out.json. Goes
    on from what --work holds. Needs the group `train`."""
    import torch

    from hmas_lab.perception.training.held_out import measure
    from hmas_lab.perception.training.loop import TrainingRecipe

    torch.set_num_threads(threads)
    measure(data, out, replace(TrainingRecipe(), seed=seed), console.print, work)


@train.command("sizes")
@needs_group("train")
def train_sizes(
    data: Data = Path("data"),
    out: Folder = ARTEFACTS,
    work: Work = Path("out/perception"),
    seed: Seed = 0,
    threads: Threads = 1,
) -> None:
    """Trains perception in several sizes (layers, word pieces) and measures what each knows and costs; writes
    sizes.json. Goes on from what --work holds. Needs the group `train`."""
    import torch

    from hmas_lab.perception.training.loop import TrainingRecipe
    from hmas_lab.perception.training.sizes import measure

    torch.set_num_threads(threads)
    measure(data, out, replace(TrainingRecipe(), seed=seed), console.print, work)


@train.command("generative")
@needs_group("train")
def train_generative(
    base: Annotated[
        str,
        typer.Option(
            help="Causal language model to tune: a local folder or a model's name; or random:WIDTHxLAYERS "
            "(random:128x2), which starts with random weights and trains all of them."
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            envvar="HMAS_DATA", help="File of prompts in the format of data/prompts, or a folder of them.", exists=True
        ),
    ] = Path("data"),
    out: Folder = Path("out/generative"),
    seed: Seed = 0,
    steps: Annotated[int, typer.Option(min=1, help="Largest number of optimizer steps in all.")] = 2000,
    batch_size: Annotated[int, typer.Option(min=1, help="Prompts in a step.")] = 8,
    rate: Annotated[
        float | None, typer.Option(min=0.0, help="Learning rate; default: 1e-4, of random weights 2e-3.")
    ] = None,
    every_prompt: Annotated[
        bool,
        typer.Option(help="Train on every prompt and measure on those same ones; else some are kept for measuring."),
    ] = False,
    until: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of prompts with all tags right at which to stop.")
    ] = 1.0,
    saved_every: Annotated[int, typer.Option(min=1, help="Steps after which it is saved and measured.")] = 100,
    resume: Annotated[bool, typer.Option(help="Go on from the last checkpoint in --out.")] = False,
    threads: Threads = 1,
) -> None:
    """Tunes LoRA weights so that a causal language model writes the task type, the SLOs and the output length of a
    prompt. Needs the group `train`."""
    import torch

    from hmas_lab.perception.training.corpus import prompt_files
    from hmas_lab.perception.training.generative import GenerativeRecipe, tune

    torch.set_num_threads(threads)
    recipe = GenerativeRecipe(
        seed=seed,
        steps=steps,
        batch_size=batch_size,
        rate=rate,
        every_prompt=every_prompt,
        until=until,
        saved_every=saved_every,
    )
    files = prompt_files(data) if data.is_dir() else [data]
    tune(base, files, out, recipe, resume, console.print)


@evaluate.command("perception")
def eval_perception(
    data: Annotated[
        list[Path],
        typer.Option(help="File of prompts in the format of data/prompts, or a folder of them; repeat it for more."),
    ],
    folder: Folder = ARTEFACTS,
    unseen: Annotated[bool, typer.Option(help="Use only prompts that training never saw.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Prints how well the model predicts task types, output lengths and tool calls for any files in the format of
    data/prompts. What a file cannot tell (no types, no answers of language models) is left out and said."""
    from hmas.perception.backends.model import ModelBackend
    from hmas_lab.perception.evaluation import evaluate_length, evaluate_task, evaluate_tools
    from hmas_lab.perception.training.corpus import prompt_files, read_prompts, split

    backend = ModelBackend(folder)
    try:
        prompts = read_prompts([file for path in data for file in (prompt_files(path) if path.is_dir() else [path])])
    except (OSError, ValueError) as error:
        raise typer.BadParameter(str(error)) from error
    if unseen:
        prompts = split(prompts, backend.metadata["recipe"]["seed"])["test"]
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "task": lambda: asdict(evaluate_task(backend, prompts)),
        "length": lambda: {
            "model_unknown": asdict(evaluate_length(backend, prompts, model_known=False)),
            "model_known": asdict(evaluate_length(backend, prompts, model_known=True)),
        },
        "tools": lambda: asdict(evaluate_tools(backend, prompts)),
    }
    figures: dict[str, Any] = {"version": backend.version, "prompts": len(prompts)}
    for name, measure in parts.items():
        try:
            figures[name] = measure()
        except ValueError as error:
            figures[name] = f"not measured: {error}"
    if as_json:
        typer.echo(json.dumps(figures, indent=1))
    else:
        Console().print(figure_table(figures))


def figure_table(figures: dict[str, Any], prefix: str = "") -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold")  # of names as long as a source's
    table.add_column(overflow="fold", min_width=12)
    for name, value in _flat(figures, prefix):
        table.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    return table


def _flat(figures: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for name, value in figures.items():
        rows += _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else [(prefix + name, value)]
    return rows
