"""Renders a `MeshView` as tables of the terminal library rich."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.contracts.job import JobRow
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import EngineSample, WorkerTelemetry
from hmas.contracts.views import ShareView, VLong, VShort
from hmas.laws.layout import bounds_ms, described, engine_classes, engine_path
from hmas.laws.scheduling_gains import told_gain
from hmas.operator.jobs import duration, share_of, templates
from hmas.operator.mesh_view import MeshView, WorkerRow
from hmas.operator.safe_cells import safe_cells

SHOWN_TEMPLATES = 5


def render_top(model: MeshView, now_s: float) -> RenderableType:
    if not model.workers:
        return Text("waiting for a worker's first heartbeat ...", style="dim")
    parts: list[RenderableType] = [*_pools(model, now_s), _workers(model, now_s)]
    for view in model.long.values():
        parts.append(_attainment(f"{view.pool}: attainment by task type", view.tasks))
        parts.append(_attainment(f"{view.pool}: attainment by tenant", view.tenants))
    if model.jobs:
        parts.append(_jobs(model.jobs))
    parts.append(_changes(model, now_s))
    return Group(*parts)


def _table(title: str, columns: Iterable[str]) -> Table:
    (shown,) = safe_cells((title,))
    table = Table(title=shown, title_justify="left", title_style="bold", box=None, pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, justify="right" if i else "left", no_wrap=i > 0, overflow="fold")
    return table


def _pools(model: MeshView, now_s: float) -> Iterable[RenderableType]:
    """Yields one table per pool, whose title names the pool and its workers' topologies. Below that of a pool that is
    only observed stands what scheduling would bring."""
    columns = ("req/s", "good/s", "queued", "running", "oldest", "TTFT s\np50/p95", "TPOT ms\np50/p95", "missed",
               "mismatch")  # fmt: skip
    for pool in sorted({*model.short, *model.decisions}):
        short = model.short.get(pool)
        reported = [r.telemetry for r in model.workers.values() if r.telemetry and r.telemetry.pool == pool]
        topology = "/".join(sorted({f"{t.topology}{' BYPASS' if t.bypass else ''}" for t in reported})) or "-"
        layout = model.layout(pool)
        told = f", {described(layout)}" if layout.cuts_s else ""
        observes = model.observes(pool)
        shown = f"observing, nothing waits (it would be {topology}{told})" if observes else f"{topology}{told}"
        table = _table(f"pool {pool}: {shown}", columns)
        table.collapse_padding = True
        table.columns[0].justify, table.columns[0].no_wrap = "right", True
        table.add_row(*_pool_cells(short, model.long.get(pool)))
        yield table
        if observes:
            yield _foretold(model.gain(now_s, pool))


def _foretold(known: tuple[float, SchedulingGain] | None) -> Text:
    if known is None:
        return Text("on time as scheduled: not simulated yet", style="dim")
    age_s, gain = known
    (told,) = safe_cells((told_gain(gain),))
    return Text(
        f"{told}; {gain.window_s / 60.0:.0f} min, simulated {age_s:.0f} s ago", "yellow" if gain.abstains else ""
    )


def _pool_cells(short: VShort | None, long: VLong | None) -> list[str]:
    if short is None:
        return ["-"] * 9
    return [
        f"{short.arrival_rps:.1f}",
        f"{long.goodput:.1f}" if long else "-",
        str(short.queued),
        str(short.running),
        f"{short.oldest_wait_s:.1f} s",
        f"{short.ttft.p50_s:.2f}/{short.ttft.p95_s:.2f}",
        f"{short.tpot.p50_s * 1e3:.0f}/{short.tpot.p95_s * 1e3:.0f}",
        f"{short.violation_rate:.0%}",
        f"{short.mismatch:.2f}",
    ]


def _workers(model: MeshView, now_s: float) -> Table:
    columns = ("name", "queue", "run", "N_run", "B_token", "KV", "step\nused", "util", "step\nms",
               "pre-\nempted", "state")  # fmt: skip
    table = _table("workers", columns)
    table.collapse_padding = True
    for name in sorted(model.workers):
        row = model.workers[name]
        telemetry = row.telemetry
        queue = _queued(telemetry) if telemetry else "-"
        title = f"{name}, {telemetry.topology}" if telemetry else name
        running = str(sum(e.running for e in telemetry.engines)) if telemetry else "-"
        table.add_row(*safe_cells((title, queue, running, "", "", "", "", "", "", "", _worker_state(row, now_s))))
        for engine in telemetry.engines if telemetry else ():
            named = f"  {engine.engine}{_class_of(row, engine.engine)}"
            table.add_row(*safe_cells((named, *_engine_cells(engine))))
    return table


def _class_of(row: WorkerRow, engine: str) -> str:
    """Returns the TPOT SLOs of an engine's pace class in words; "" while the layout is mixed."""
    if row.heartbeat is None or not row.heartbeat.layout.cuts_s:
        return ""
    layout, at = row.heartbeat.layout, engine_path(row.heartbeat.worker, engine)
    return f" ({bounds_ms(layout.cuts_s, engine_classes(layout, (at,))[at])})"


def _worker_state(row: WorkerRow, now_s: float) -> Text:
    if row.lost(now_s):
        return Text(f"silent {now_s - row.heard_s:.0f} s", style="red")
    if row.heartbeat is not None and row.heartbeat.draining:
        return Text("draining" if row.heartbeat.engines else "stands by", style="yellow")
    if row.heartbeat is not None and row.heartbeat.observes:
        told = f"observes: {row.heartbeat.observed_grants} grants after {row.heartbeat.observed_wait_s:.2f} s"
        return Text(told, style="yellow")
    if row.telemetry is not None and row.telemetry.bypass:
        return Text("bypass", style="yellow")
    if row.telemetry is not None and row.telemetry.control_expired:
        return Text("safe default", style="yellow")
    return Text("ok", style="green")


def _engine_cells(engine: EngineSample) -> list[str | Text]:
    return [
        str(engine.waiting),
        str(engine.running),
        str(engine.n_run),
        str(engine.b_token),
        f"{engine.kv_usage:.0%}",
        f"{engine.time_used:.0%}" if engine.time_used else "-",
        f"{engine.utilisation:.2f}",
        f"{engine.step_s * 1e3:.0f}",
        str(engine.preemptions_total),
        _engine_state(engine),
    ]


def _queued(telemetry: WorkerTelemetry) -> str:
    asleep = telemetry.queued_asleep
    return f"{telemetry.queued_count} ({asleep} asleep)" if asleep else str(telemetry.queued_count)


def _engine_state(engine: EngineSample) -> Text:
    if not engine.up:
        return Text("down", style="red")
    if engine.asleep:
        return Text("asleep", style="yellow")
    return Text("suspected", style="yellow") if engine.suspected else Text("up", style="green")


def _attainment(title: str, shares: tuple[ShareView, ...]) -> Table:
    table = _table(title, ("", "offered", "settled", "OK", "TTFT ok", "TPOT ok", "tokens"))
    for share in sorted(shares, key=lambda s: (-s.offered, s.name))[:14]:
        of = max(share.settled, 1)
        table.add_row(
            *safe_cells((share.name,)),
            str(share.offered),
            str(share.settled),
            f"{share.ok / of:.0%}",
            f"{share.ttft_ok / of:.0%}",
            f"{share.tpot_ok / of:.0%}",
            str(share.tokens_served),
        )
    return table


def _jobs(jobs: list[JobRow]) -> Table:
    """The templates whose jobs take longest; `hmas jobs` shows more of them."""
    every, running = templates(jobs), sum(job.running > 0 for job in jobs)
    table = _table(
        f"jobs: {len(jobs)} lately, {running} running",
        ("template", "tenant", "jobs", "now", "calls", "mean s", "most s", "cached", "failed"),
    )
    table.collapse_padding = True
    for row in every[:SHOWN_TEMPLATES]:
        table.add_row(
            *safe_cells((row.template or "-", row.tenant)),
            str(row.jobs),
            str(row.running),
            f"{row.calls / row.jobs:.1f}",
            duration(row.mean_s),
            duration(row.most_s),
            share_of(row.cached_tokens, row.prompt_tokens),
            str(row.failed),
        )
    return table


def _changes(model: MeshView, now_s: float) -> Table:
    table = _table("changes", ("ago", "where", "what"))
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "left", False
    for at_s, where, what in reversed(model.changes):
        table.add_row(*safe_cells((f"{now_s - at_s:.0f} s", where, what)))
    return table
