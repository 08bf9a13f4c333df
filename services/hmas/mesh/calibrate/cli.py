"""The command `hmas calibrate`."""

import platform
from dataclasses import replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from hmas.mesh.calibrate.client import Endpoint, EndpointFailed
from hmas.mesh.calibrate.journal import MeasurementJournal
from hmas.mesh.calibrate.limits import Stated, limits_of
from hmas.mesh.calibrate.measurement import Measurement
from hmas.mesh.calibrate.outcome import Calibration, calibrated, plots, poor_fits, table
from hmas.mesh.calibrate.points import DECODE_TOKENS, PlanPoint, make_plan, requests_of
from hmas.mesh.calibrate.probe import measure
from hmas.mesh.command import run_command

console = Console()
errors = Console(stderr=True)
PROBES = 3  # requests that determine how many tokens a word has
DEFAULT_MODEL_LEN = 4096


def calibrate(
    url: Annotated[str, typer.Argument(help="base URL of any OpenAI endpoint, e.g. http://127.0.0.1:8000")],
    out: Annotated[Path, typer.Option(help="profile file to write")] = Path("out/calibrated.yaml"),
    name: Annotated[str, typer.Option(help="name of the profile; default: the model's name and this host's")] = "",
    model: Annotated[str, typer.Option(help="model to measure; default: the first that the endpoint lists")] = "",
    hardware: Annotated[str, typer.Option(help="the engine's card and how many, e.g. H100x2, for `hmas profile`")] = "",
    api_key_file: Annotated[Path | None, typer.Option(help="file with the endpoint's API key")] = None,
    max_requests: Annotated[int, typer.Option(min=40, help="maximum number of requests to send in all")] = 400,
    max_batch: Annotated[int, typer.Option(min=1, help="maximum number of requests at once")] = 64,
    max_prompt: Annotated[
        int | None, typer.Option(min=64, help="longest prompt, in tokens; default: the model's context length")
    ] = None,
    max_num_seqs: Annotated[int | None, typer.Option(min=1, help="the engine's --max-num-seqs, if known")] = None,
    max_num_batched_tokens: Annotated[int, typer.Option(min=1, help="the engine's --max-num-batched-tokens")] = 2048,
    kv_tokens: Annotated[int | None, typer.Option(min=1, help="size of the KV cache in tokens, if known")] = None,
    request_timeout: Annotated[float, typer.Option(min=1, help="seconds one request may take")] = 120.0,
    fresh: Annotated[bool, typer.Option(help="discard the measurements of a former run, interrupted or not")] = False,
) -> None:
    """Measure a live endpoint, fit the emulated engine's cost model to it, and write an engine profile."""
    stated = Stated(max_num_seqs, max_num_batched_tokens, kv_tokens)
    journal = out.with_suffix(".points.jsonl")

    async def main() -> int:
        if fresh:
            journal.unlink(missing_ok=True)
        key = api_key_file.read_text().strip() if api_key_file else ""
        try:
            async with Endpoint(url, key, model, request_timeout) as endpoint:
                made, remarks = await _calibrate(
                    endpoint, url, name, hardware, max_requests, max_batch, max_prompt, stated, journal
                )
        except EndpointFailed as error:
            errors.print(f"hmas calibrate: {error}", soft_wrap=True, markup=False)
            return 1
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(made.yaml(), encoding="utf-8")
        console.print(plots(made), highlight=False)
        console.print(table(made))
        for remark in [*remarks, *poor_fits(made)]:
            console.print(f"note: {remark}", style="yellow")
        console.print(f"wrote {out}; what the simulator makes of it:", soft_wrap=True)
        console.print(f"  hmas sim capacity --profile {out}", soft_wrap=True)
        slots = "" if max_num_seqs is None else f" --max-num-seqs {max_num_seqs}"
        console.print(f"  hmas compare --engine {url}{slots} --simulated {out}", soft_wrap=True)
        return 0

    run_command(main)


async def _calibrate(
    endpoint: Endpoint, url: str, name: str, hardware: str, budget: int, max_batch: int, max_prompt: int | None,
    stated: Stated, journal_path: Path,
) -> tuple[Calibration, list[str]]:  # fmt: skip
    card = await endpoint.card()
    model_len = int(card.get("max_model_len") or DEFAULT_MODEL_LEN)
    longest = min(max_prompt or model_len, model_len) - DECODE_TOKENS
    points = make_plan(longest, max_batch, budget - PROBES)
    subject = {"url": url, "model": endpoint.model, "longest": longest, "max_batch": max_batch, "budget": budget}
    journal = MeasurementJournal(journal_path, subject)
    former = len(journal.done)
    measurements = await _measured(endpoint, points, journal)
    limits, remarks = limits_of(await endpoint.metrics(), model_len, measurements, stated)
    if former:
        remarks.append(
            f"{former} of {len(points)} points were measured by an earlier run, whose measurements are in "
            f"{journal_path}: --fresh measures all anew"
        )
    short = endpoint.model.rpartition("/")[2]
    source = f"measured by `hmas calibrate` at {urlsplit(url).netloc}: {endpoint.model}, {requests_of(points)} requests"
    made = calibrated(name or f"{short}-{platform.node()}", source, measurements, limits)
    return replace(made, profile=replace(made.profile, model=endpoint.model, hardware=hardware)), remarks


async def _measured(
    endpoint: Endpoint, points: tuple[PlanPoint, ...], journal: MeasurementJournal
) -> list[Measurement]:
    """Measures all points and shows a progress bar that counts requests; points in the journal count at once."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("requests", total=requests_of(points))

        def show(measurement: Measurement) -> None:
            progress.update(task, advance=measurement.batch, description=measurement.id)

        return await measure(endpoint, points, journal, show)
