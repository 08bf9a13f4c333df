"""The command `hmas jobs`: asks every gateway for the jobs that it has seen lately, and adds them up."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.contracts.job import JobRow, JobsReply
from hmas.operator.client import connected, replies_to
from hmas.operator.safe_cells import safe_cells
from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode
from hmas.wire.subjects import QUERY_JOBS

QUIET_S = 0.3  # every gateway answers for itself; after this long without a reply no more are expected
MAX_REPLIES = 64


@dataclass(slots=True, kw_only=True)
class TemplateRow:
    """The jobs of one tenant that share the first message of their prompts. `mean_s` and `most_s` are durations, from a
    job's first call to the end of its last one; -1: none has ended a call. `running` jobs are not counted in them."""

    template: str
    tenant: str
    model: str
    jobs: int = 0
    running: int = 0
    calls: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    mean_s: float = -1.0
    most_s: float = -1.0
    busy_s: float = 0.0
    request_id: str = ""  # the last call of the slowest one


def merged(told: Iterable[JobsReply]) -> list[JobRow]:
    """Returns the jobs of all gateways; a job whose calls came to several is one."""
    jobs: dict[str, JobRow] = {}
    for each in told:
        for row in each.jobs:
            known = jobs.get(row.job)
            jobs[row.job] = row if known is None else _added(known, row)
    return list(jobs.values())


def _added(one: JobRow, other: JobRow) -> JobRow:
    last = one if one.quiet_s <= other.quiet_s else other
    return replace(
        last,
        calls=one.calls + other.calls,
        running=one.running + other.running,
        failed=one.failed + other.failed,
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        begun_age_s=max(one.begun_age_s, other.begun_age_s),
        busy_s=one.busy_s + other.busy_s,
    )


def templates(jobs: Iterable[JobRow]) -> list[TemplateRow]:
    """Returns the templates of the jobs, the slowest first, by the mean duration of jobs that do not run now. Those
    whose jobs have one call each, such as plain chats, come last."""
    rows: dict[tuple[str, str], TemplateRow] = {}
    total_s: dict[tuple[str, str], float] = {}
    for job in jobs:
        key = job.tenant, job.template
        row = rows.setdefault(key, TemplateRow(template=job.template, tenant=job.tenant, model=job.model))
        row.jobs += 1
        row.calls += job.calls
        row.failed += job.failed
        row.prompt_tokens += job.prompt_tokens
        row.cached_tokens += job.cached_tokens
        row.output_tokens += job.output_tokens
        row.busy_s += job.busy_s
        if job.running:
            row.running += 1
            continue
        lasted_s = max(0.0, job.begun_age_s - job.quiet_s)
        total_s[key] = total_s.get(key, 0.0) + lasted_s
        row.mean_s = total_s[key] / (row.jobs - row.running)
        if lasted_s > row.most_s:
            row.most_s, row.request_id = lasted_s, job.request_id
    return sorted(rows.values(), key=lambda row: (row.calls == row.jobs, -row.mean_s, row.tenant, row.template))


async def ask_jobs(bus: Bus) -> list[JobRow]:
    """Returns the jobs that the gateways have seen lately. Raises MeshUnreachable."""
    async with connected(bus):
        return await jobs_of(bus)


async def jobs_of(bus: Bus) -> list[JobRow]:
    """Asks over a bus that is connected. Raises nats.errors.Error."""
    told: list[JobsReply] = []
    async for data in replies_to(bus, QUERY_JOBS, b"", QUIET_S):
        if len(told) < MAX_REPLIES:
            with suppress(WireError):
                told.append(decode(JobsReply, data))
    return merged(told)


def render_jobs(jobs: list[JobRow], most: int) -> RenderableType:
    """Renders the slowest templates, and the jobs that run now, at most `most` of each."""
    every = templates(jobs)
    running = sorted((job for job in jobs if job.running), key=lambda job: -job.begun_age_s)
    slowest = _table(
        "slowest templates",
        ("template", "tenant", "jobs", "running", "calls/job", "mean s", "most s", "cached", "failed", "slowest job"),
        (
            (row.template or "-", row.tenant, str(row.jobs), str(row.running), f"{row.calls / row.jobs:.1f}",
             duration(row.mean_s), duration(row.most_s), share_of(row.cached_tokens, row.prompt_tokens),
             str(row.failed), row.request_id)
            for row in every[:most]
        ),
    )  # fmt: skip
    now = _table(
        "jobs with a call in flight",
        ("job", "tenant", "template", "calls", "open", "since s", "prompt tokens", "cached", "last call"),
        (
            (job.job, job.tenant, job.template or "-", str(job.calls), str(job.running), f"{job.begun_age_s:.1f}",
             str(job.prompt_tokens), share_of(job.cached_tokens, job.prompt_tokens), job.request_id)
            for job in running[:most]
        ),
    )  # fmt: skip
    rest = Text(f"{len(jobs)} jobs of {len(every)} templates; {len(running)} have a call in flight", style="dim")
    return Group(slowest, now, rest)


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*safe_cells(row))
    return table


def duration(value: float) -> str:
    """Returns a duration as text; below 0 it is not known."""
    return "-" if value < 0.0 else f"{value:.2f}"


def share_of(part: int, whole: int) -> str:
    """Returns a share as text."""
    return f"{100.0 * part / whole:.0f} %" if whole else "-"
