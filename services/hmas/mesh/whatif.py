"""The command `hmas whatif`: what another policy, another number of engines or other SLOs would have done to a pool's
last requests."""

import asyncio
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.contracts.cadences import HEARTBEAT_S
from hmas.contracts.control import Layout, TopologyDecision
from hmas.contracts.rehearsal import LEARN_S, WARM_S, Policy, PoolFacts, Rehearsal, SloChange
from hmas.contracts.request import TaskType
from hmas.contracts.routes import Role
from hmas.entry_points import known_topology
from hmas.laws.layout import split_of
from hmas.laws.rehearsal import described, pool_facts
from hmas.mesh.past_files import Past
from hmas.mesh.whatif_plan import WantedEngines
from hmas.operator.client import connected
from hmas.operator.mesh_view import MeshView
from hmas.runtime.bus import Bus
from hmas.runtime.past_client import PastUnavailable, past_blocks, rows_of
from hmas.runtime.solver import Solver, solve
from hmas.sim.past.rehearse import MODULE, RehearsalQuestion, parse_answer, question_lines

LISTEN_S = 12.0  # until the pool's engines, views and topology were heard, at most
EVERY_WORKER_S = 2.0 * HEARTBEAT_S  # in which each worker is heard
TIMEOUT_S = 1800.0
ABSTAINS = 3  # exit code
MAX_TENANTS = 12
_UNITS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}


async def listen(bus: Bus, pool: str, last_s: float) -> Past:
    """Returns a running pool's past requests, engines and what is in force. Raises MeshUnreachable, and ValueError if
    the pool is not heard or nobody tells its past."""
    model, enough = MeshView(), asyncio.Event()

    def facts() -> PoolFacts | None:
        beats = [row.heartbeat for row in model.workers.values() if row.heartbeat and row.heartbeat.pool == pool]
        return pool_facts(beats, model.long.get(pool), [each.place for each in model.layout(pool).engines])

    def hear(value: Any) -> None:
        model.hear(time.monotonic(), value)
        if pool in model.long and pool in model.decisions and pool in model.layouts and facts() is not None:
            enough.set()

    bus.follow(Role.TOP, hear)
    async with connected(bus):
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.gather(enough.wait(), asyncio.sleep(EVERY_WORKER_S)), LISTEN_S)
        decision = model.decisions.get(pool)
        if decision is None:
            heard = ", ".join(sorted(model.decisions)) or "none"
            raise ValueError(
                f"nothing was heard of the pool {pool} in {LISTEN_S:.0f} s (heard of: {heard}): name one with --pool"
            )
        try:
            rows = rows_of(await past_blocks(bus, pool, last_s + WARM_S + LEARN_S))
        except PastUnavailable as error:
            raise ValueError(str(error)) from None
    in_force = replace(in_force_of(decision, model.layout(pool)), observes=model.observes(pool))
    return Past(pool=pool, in_force=in_force, rows=tuple(rows), facts=facts())


def in_force_of(decision: TopologyDecision, layout: Layout) -> Policy:
    return Policy(
        topology=decision.topology, hints=decision.hints, split=split_of(layout), proposer=decision.selector
    )  # fmt: skip


async def asked(question: RehearsalQuestion, past: Past) -> Rehearsal:
    """Rehearses in a process of its own, which gives way to everything else. Raises ValueError with what it said if it
    could not."""
    command = (sys.executable, "-m", MODULE)
    solver = Solver(command=command, limit_s=TIMEOUT_S, own_session=False)  # a key or the console ends both together
    return parse_answer((await solve(solver, question_lines(question, past.rows))).answer)


def seconds(text: str) -> float:
    """Reads a duration such as 90s, 5m or 1h. Raises ValueError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip())
    if not found or not float(found[1]):
        raise ValueError(f"{text!r} is not a duration: use a number of seconds, or such as 90s, 5m, 1h")
    return float(found[1]) * _UNITS[found[2]]


def engine_count(text: str, now: int) -> int:
    """Reads a number of engines: N, or +N or -N more or fewer than now. Raises ValueError."""
    found = re.fullmatch(r"([+-]?)(\d{1,4})", text.strip())
    if not found:
        raise ValueError(f"{text!r} is not a number of engines: use N, +N or -N")
    count = int(found[2]) if not found[1] else now + int(text)
    if count < 1:
        raise ValueError(f"{text} leaves {count} engines of {now}: at least one must stay")
    return count


def slo_change(text: str, names: Sequence[str]) -> SloChange:
    """Reads an SLO such as chat:ttft=800,tpot=60 (ms) of a tenant or task type among `names`. Raises ValueError."""
    name, _, limits = text.rpartition(":")
    found = dict(re.findall(r"(ttft|tpot)=(\d+(?:\.\d+)?)(?:,|$)", limits))
    if (
        not name
        or not found
        or ",".join(f"{k}={v}" for k, v in found.items()) != limits
        or not all(map(float, found.values()))
    ):
        raise ValueError(f"{text!r} is not an SLO: use NAME:ttft=MS,tpot=MS, or one of the two, such as chat:ttft=800")
    if name not in names:
        raise ValueError(f"no request was of the tenant or task type {name!r}: there were {', '.join(names)}")
    limit_s = {kind: float(value) / 1000.0 for kind, value in found.items()}
    return SloChange(name=name, ttft_s=limit_s.get("ttft"), tpot_s=limit_s.get("tpot"))


def candidates_of(
    past: Past,
    topologies: Sequence[str],
    objective: str | None,
    wanted: WantedEngines,
    slos: Sequence[str],
) -> tuple[Policy, ...]:
    """Returns the policies that the options name: what is in force with what they change, once for each topology. Of a
    pool that is only observed, each schedules; without any option the one that would be in force. Raises ValueError."""
    others = [known_topology(name) for name in dict.fromkeys(topologies)]
    if objective not in (None, "requests", "tokens"):
        raise ValueError(f"{objective!r} is not an objective: choose one of requests, tokens")
    names = sorted({row.tenant for row in past.rows} | {row.task.value for row in past.rows} - {TaskType.UNKNOWN.value})
    base = replace(
        past.in_force,
        proposer="operator",
        observes=False,
        engines=wanted.engines,
        leave_after_s=wanted.leave_after_s,
        slos=tuple(slo_change(slo, names) for slo in slos),
        split=past.in_force.split if wanted.split is None else wanted.split,
    )
    if objective is not None:
        base = replace(base, hints=replace(base.hints, by_tokens=objective == "tokens"))
    if others:
        return tuple(replace(base, topology=topology) for topology in others)
    changed = objective or wanted.engines is not None or slos or past.in_force.observes
    return (base,) if changed else ()


def render(past: Past, found: Rehearsal, steps: str = "") -> RenderableType:
    """Shows what was observed first, the same in simulation, and then the candidates, over all and by tenant; below,
    the steps of a plan, if there is one."""
    columns = [("observed", found.observed), (f"in force, simulated: {described(past.in_force)}", found.in_force)]
    columns += [(described(each.policy), each.figures) for each in found.candidates]
    table = Table(
        box=None,
        pad_edge=False,
        title_justify="left",
        title=f"{found.observed.requests} requests of {found.window_s:.0f} s",
    )
    for name in ("", "on time", "gain, points", "90 % interval", "TTFT p50 s", "p95 s"):
        table.add_column(name, justify="right" if name else "left")
    for i, (name, figures) in enumerate(columns):
        gain = found.candidates[i - 2] if i >= 2 else None
        table.add_row(
            Text(name), f"{figures.on_time:.1%}",
            "" if gain is None else f"{100 * gain.gain:+.1f}",
            "" if gain is None else f"{100 * gain.low:+.1f} to {100 * gain.high:+.1f}",
            f"{figures.ttft_p50_s:.2f}", f"{figures.ttft_p95_s:.2f}",
        )  # fmt: skip
    parts: list[RenderableType] = [table, _tenants(found)]
    if found.drawn:
        parts.append(
            Text(f"{found.drawn} requests did not finish: their lengths were drawn from what was predicted", "dim")
        )
    if steps:
        parts.append(Text(f"steps of the plan: {steps}", "dim"))
    parts.append(Text(f"simulated in {found.cpu_s:.0f} s of one core", "dim"))
    if found.abstains:
        parts.append(Text(f"do not believe the simulated figures: {found.abstains}", "bold red"))
    return Group(*parts)


def _tenants(found: Rehearsal) -> Table:
    """Returns the tenants' shares on time, and beside a candidate's the interval of its gain in points."""
    columns = [found.observed, found.in_force, *(each.figures for each in found.candidates)]
    names = ["observed", "in force", *(f"candidate {i}" for i in range(1, len(columns) - 1))]
    table = Table(box=None, pad_edge=False, title="on time by tenant", title_justify="left")
    for name in ("tenant", "requests", *names):
        table.add_column(name, justify="left" if name == "tenant" else "right")
    shares = [{share.tenant: f"{share.on_time:.1%}" for share in figures.tenants} for figures in columns]
    for candidate, column in zip(found.candidates, shares[2:], strict=True):
        for gain in candidate.tenants:
            column[gain.tenant] += f" ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
    for share in columns[0].tenants[:MAX_TENANTS]:
        cells = [each.get(share.tenant, "-") for each in shares]
        table.add_row(Text(share.tenant), str(share.requests), *cells)
    return table


def data_of(past: Past, found: Rehearsal) -> dict[str, Any]:
    """Returns the outcome as JSON can hold it."""
    return {"pool": past.pool, "in_force_policy": described(past.in_force), **asdict(found)}
