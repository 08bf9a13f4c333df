"""The page Control: who chose which topology, when and why, and Statera's loops on one engine."""

from typing import Any

from hmas.console.pages.numbers import chosen, curve, rounded
from hmas.console.state import WINDOW_S, ConsoleState, Flag, Segment
from hmas.contracts.control import TopologyName

PIN = "pin"  # the selector of a decision that an operator made
TOLD_CHARS = 300


def view_control(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns topologies over time, the flags of decisions, what is pinned, and the loops of the engine `choice`
    (`worker engine`)."""
    engines = {f"{worker} {engine}": (worker, engine) for worker, engine in state.loops}
    engine = chosen(engines, choice)
    began_s = now_s - WINDOW_S
    return {
        "connected": state.connected,
        "pools": {pool: _pin(state, pool) for pool in sorted({*state.top.short, *state.top.decisions})},
        "topologies": {str(s.number): _segment(s) for s in state.segments if s.until_s > began_s},
        "flags": {str(flag.number): _flag(flag) for flag in state.flags},
        "engines": dict.fromkeys(sorted(engines), True),
        "engine": engine,
        "loop": curve(state.loops[engines[engine]]) if engine else {},
        "set": _in_force(state, *engines[engine]) if engine else {},
        "choices": [name.value for name in TopologyName],
    }


def _pin(state: ConsoleState, pool: str) -> dict[str, Any]:
    segment = state.in_force(pool)
    pinned = segment is not None and segment.selector == PIN
    return {"pinned": segment.topology if segment is not None and pinned else ""}


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "pool": segment.pool, "from_s": rounded(segment.from_s, 1), "until_s": rounded(segment.until_s, 1),
        "topology": segment.topology, "bypass": segment.bypass, "proposer": segment.selector, "reason": segment.reason,
        "pinned": segment.selector == PIN,
    }  # fmt: skip


def _flag(flag: Flag) -> dict[str, Any]:
    record = flag.record
    return {
        "at_s": rounded(flag.at_s, 1), "pool": record.pool, "source": record.source, "kind": record.kind,
        "decision": record.decision[:TOLD_CHARS], "reason": record.reason[:TOLD_CHARS], "proposer": record.selector,
    }  # fmt: skip


def _in_force(state: ConsoleState, worker: str, engine: str) -> dict[str, Any]:
    """Returns Statera's set-points of an engine, and what the fence multiplies predicted lengths by."""
    row = state.top.workers.get(worker)
    if row is None or row.control is None:
        return {}
    told: dict[str, Any] = {"frozen": row.control.frozen}
    for each in row.control.engines:
        if each.engine == engine:
            told |= {"n_run": each.n_run, "b_token": each.b_token, "b_min": each.b_min, "b_max": each.b_max,
                     "u_low": rounded(each.u_low), "u_high": rounded(each.u_high)}  # fmt: skip
    factors = [bucket.factor for table in row.control.fence.tables for bucket in table.buckets]
    if factors:
        told |= {"fence_least": rounded(min(factors)), "fence_most": rounded(max(factors))}
    return told
