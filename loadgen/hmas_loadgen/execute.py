"""Runs load plans one after another, each with live progress and its own result folder, and ends cleanly on Ctrl-C."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from hmas_loadgen import report
from hmas_loadgen.output import REPORT, SUMMARY, FolderInUse, RunFolder, load_run
from hmas_loadgen.plan import LoadPlan
from hmas_loadgen.progress import LiveProgress
from hmas_loadgen.prompts import Corpus
from hmas_loadgen.result import LoadResult
from hmas_loadgen.runner.run import run_load
from hmas_loadgen.timeline import fetch_timeline


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """Plans, each with its result folder. With `resume`, finished runs are read back from their folders, and an
    unfinished run is continued."""

    plans: Sequence[tuple[LoadPlan, Path]]
    corpus: Corpus | None = None
    resume: bool = False


async def execute(runs: PlannedRuns, console: Console) -> tuple[list[LoadResult], bool]:
    """Runs every plan. Returns the results, and whether the user stopped the series by Ctrl-C; if so, the last result
    may be partial. Raises FolderInUse if a folder holds another run."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, stop.set)
    results: list[LoadResult] = []
    try:
        for plan, folder in runs.plans:
            if runs.resume and (folder / SUMMARY).exists():
                results.append(_finished(plan, folder))
                continue
            results.append(await _one(plan, folder, runs, stop, console))
            if stop.is_set():
                break
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    return results, stop.is_set()


def _finished(plan: LoadPlan, folder: Path) -> LoadResult:
    result = load_run(folder)
    if result.config.get("fingerprint") != plan.fingerprint():
        raise FolderInUse(f"{folder} holds a run with other options; give that run's options, or choose another --out")
    return result


async def _one(plan: LoadPlan, folder: Path, runs: PlannedRuns, stop: asyncio.Event, console: Console) -> LoadResult:
    with RunFolder(folder, plan, resume=runs.resume) as output, LiveProgress(console, plan.name) as progress:
        if output.earlier:
            console.print(f"{plan.name}: {len(output.earlier)} of {len(plan.trace.rows)} requests are done; continuing")
        result = await run_load(
            plan, progress, on_record=output.add, corpus=runs.corpus, stop=stop, earlier=output.earlier
        )
        output.finish(result)
    target = plan.target
    key = target.api_key or next(iter(target.tenant_keys.values()), None)
    timeline = await asyncio.to_thread(fetch_timeline, target.base_urls[0], result.model, key)
    report.write(folder / REPORT, [result], plan.name, timeline)
    return result
