"""The page Jobs: the templates whose jobs take longest, and the jobs that run, with their calls and cached tokens."""

from typing import Any

from hmas.console.pages.numbers import rounded
from hmas.console.state import ConsoleState
from hmas.contracts.job import JobRow
from hmas.operator.jobs import TemplateRow, templates

SHOWN_TEMPLATES = 30
SHOWN_JOBS = 60


def view_jobs(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the slowest templates, and the jobs with a call in flight, the longest first."""
    asked = state.jobs
    jobs = (asked.told if asked is not None else None) or []
    every = templates(jobs)
    running = sorted((job for job in jobs if job.running), key=lambda job: -job.begun_age_s)
    return {
        "connected": state.connected,
        "state": "asked" if asked is None else "silent" if asked.told is None else "told",
        "jobs": len(jobs),
        "running": len(running),
        "templates": {f"{row.tenant} {row.template}": _template(place, row)
                      for place, row in enumerate(every[:SHOWN_TEMPLATES], 1)},
        "left_out": max(0, len(every) - SHOWN_TEMPLATES),
        "now": {job.job: _job(place, job) for place, job in enumerate(running[:SHOWN_JOBS], 1)},
    }  # fmt: skip


def _share(cached: int, prompt: int) -> float:
    return rounded(cached / prompt) if prompt else -1.0


def _template(place: int, row: TemplateRow) -> dict[str, Any]:
    return {
        "place": place, "template": row.template, "tenant": row.tenant, "model": row.model, "jobs": row.jobs,
        "running": row.running, "calls": rounded(row.calls / row.jobs, 1), "mean_s": rounded(row.mean_s, 2),
        "most_s": rounded(row.most_s, 2), "busy": _busy(row), "cached": _share(row.cached_tokens, row.prompt_tokens),
        "failed": row.failed, "request_id": row.request_id,
    }  # fmt: skip


def _busy(row: TemplateRow) -> float:
    """Returns the mean seconds of a job in which calls of it were served or waited, added up."""
    return rounded(row.busy_s / row.jobs, 2)


def _job(place: int, job: JobRow) -> dict[str, Any]:
    return {
        "place": place, "tenant": job.tenant, "template": job.template, "calls": job.calls, "open": job.running,
        "since_s": rounded(job.begun_age_s, 1), "prompt_tokens": job.prompt_tokens,
        "cached": _share(job.cached_tokens, job.prompt_tokens), "output_tokens": job.output_tokens,
        "request_id": job.request_id,
    }  # fmt: skip
