"""The page Control: who chose which topology, when and why, and Statera's loops on one engine."""

from typing import Any

from hmas.console.pages.numbers import chosen, curve, rounded
from hmas.console.state import WINDOW_S, ConsoleState, Flag, Segment
from hmas.entry_points import topology_names

PIN = "pin"  # the selector of a decision that an operator made
TOLD_CHARS = 300
OUTCOME_S = 60.0  # before and after a switch, over which its outcome is taken
SETTLING_S = 5.0  # after a switch, the views still tell of what was before it


def view_control(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns topologies over time, the flags of decisions, what is pinned, and the loops of the engine `choice`
    (`worker engine`)."""
    engines = {f"{worker} {engine}": (worker, engine) for worker, engine in state.loops}
    engine = chosen(engines, choice)
    began_s = now_s - WINDOW_S
    return {
        "connected": state.connected,
        "pools": {pool: _pin(state, pool) for pool in sorted({*state.top.short, *state.top.decisions})},
        "topologies": {str(s.number): _segment(state, s) for s in state.segments if s.until_s > began_s},
        "flags": {str(flag.number): _flag(flag) for flag in state.flags},
        "engines": dict.fromkeys(sorted(engines), True),
        "engine": engine,
        "loop": curve(state.loops[engines[engine]]) if engine else {},
        "set": _in_force(state, *engines[engine]) if engine else {},
        "fence": _fence(state, engines[engine][0]) if engine else {},
        "choices": [*topology_names()],
    }


def _pin(state: ConsoleState, pool: str) -> dict[str, Any]:
    segment = state.in_force(pool)
    pinned = segment is not None and segment.selector == PIN
    return {"pinned": segment.topology if segment is not None and pinned else ""}


def _segment(state: ConsoleState, segment: Segment) -> dict[str, Any]:
    """Returns a stretch of time with one topology, and its outcome: the shares of requests that missed their SLOs
    before and after its beginning, weighted by what was offered (-1: none was), and of a rehearsed switch the gain
    that was predicted and the one that was seen."""
    from_s, until_s = segment.from_s, segment.until_s
    gains = {"predicted": segment.predicted, "observed": segment.observed}
    told = {name: rounded(gain, 4) for name, gain in gains.items() if gain is not None}
    return told | {
        "missed_before": _missed(state, segment.pool, from_s - OUTCOME_S, from_s),
        "missed_after": _missed(state, segment.pool, from_s + SETTLING_S, min(until_s, from_s + OUTCOME_S)),
        "pool": segment.pool, "from_s": rounded(segment.from_s, 1), "until_s": rounded(segment.until_s, 1),
        "topology": segment.topology, "bypass": segment.bypass, "proposer": segment.selector, "reason": segment.reason,
        "pinned": segment.selector == PIN,
    }  # fmt: skip


def _missed(state: ConsoleState, pool: str, from_s: float, until_s: float) -> float:
    offered = missed = 0.0
    for point in state.load.get(pool, ()):
        if from_s <= point.at_s < until_s:
            offered += point.offered_rps
            missed += point.offered_rps * point.missed
    return rounded(missed / offered) if offered else -1.0


def _fence(state: ConsoleState, worker: str) -> dict[str, Any]:
    """Returns the factors of the fence by predictor and length of the prompt, without those of single tenants, and how
    many of the answers of the last minutes stayed within the bound that they were admitted by."""
    row = state.top.workers.get(worker)
    tables = row.control.fence.tables if row is not None and row.control is not None else ()
    inside, beyond = (state.kept_bounds.counts[worker, kept] for kept in (True, False))
    return {
        "factors": {
            f"{table.version} {bucket.prompt_upto}": {
                "predictor": table.version, "prompt_upto": bucket.prompt_upto, "factor": rounded(bucket.factor),
            }
            for table in tables if not table.tenant for bucket in table.buckets
        },
        "answers": inside + beyond,
        "inside": rounded(inside / (inside + beyond)) if inside + beyond else -1.0,
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
    view: dict[str, Any] = {"frozen": row.control.frozen}
    for each in row.control.engines:
        if each.engine == engine:
            view |= {"n_run": each.n_run, "b_token": each.b_token, "b_min": each.b_min, "b_max": each.b_max,
                     "u_low": rounded(each.u_low), "u_high": rounded(each.u_high)}  # fmt: skip
    factors = [bucket.factor for table in row.control.fence.tables for bucket in table.buckets]
    if factors:
        view |= {"fence_least": rounded(min(factors)), "fence_most": rounded(max(factors))}
    return view
