"""The page Now: pools, engines, attainment by tenant, and the load of the last ten minutes of one pool."""

from collections import Counter
from typing import Any

from hmas.console.pages.numbers import chosen, curve, rounded
from hmas.console.state import ConsoleState
from hmas.contracts.telemetry import EngineSample
from hmas.contracts.views import ShareView, VLong, VShort
from hmas.operator.mesh_view import WorkerRow

SILENT_S = 1.25  # without heartbeat (1 s) and telemetry (0.1 s)
RESTARTED_S = 10.0  # as long a restart stands out
FORGOTTEN_S = 600.0  # a worker that was silent for this long is no longer shown
MAX_TENANTS = 200
MAX_TOLD = 300


def view_now(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns pools, engines, tenants and the curve of the pool `choice`."""
    top = state.top
    pools = sorted({*top.short, *top.decisions})
    pool = chosen(pools, choice)
    overdue = state.open.overdue(now_s)
    return {
        "connected": state.connected,
        "pools": {name: _pool(state, name) | {"overdue": overdue[name].total()} for name in pools},
        "foretold": {name: _foretold(state, now_s, name) for name in pools if top.observes(name)},
        "pool": pool,
        "engines": _engines(state, now_s),
        "tenants": tenants_of(state, pool, overdue[pool]),
        "load": curve(state.load.get(pool, ())),
    }


def _pool(state: ConsoleState, name: str) -> dict[str, Any]:
    view: dict[str, Any] = {}
    segment = state.in_force(name)
    if segment is not None:
        view = {"topology": segment.topology, "bypass": segment.bypass, "selector": segment.selector,
                "reason": segment.reason}  # fmt: skip
    past = state.load.get(name)
    rate = {"in_time_rps": rounded(past[-1].in_time_rps, 2)} if past else {}
    if state.top.observes(name):
        view |= {"observes": True}  # nothing of it is in force
    return view | _short(state.top.short.get(name)) | rate | _long(state.top.long.get(name))


def _foretold(state: ConsoleState, now_s: float, name: str) -> dict[str, Any]:
    """Returns what scheduling would bring a pool that is only observed; empty while that was not told."""
    known = state.top.gain(now_s, name)
    if known is None:
        return {}
    age_s, gain = known
    shares = {} if gain.abstains else {"scheduled": rounded(gain.scheduled), "low": rounded(gain.low),
                                       "high": rounded(gain.high)}  # fmt: skip
    was = {"was": rounded(gain.was)} if gain.requests else {}
    return was | shares | {
        "abstains": gain.abstains[:MAX_TOLD], "requests": gain.requests, "window_s": rounded(gain.window_s, 0),
        "at_s": rounded(now_s - age_s, 0),
    }  # fmt: skip


def _short(short: VShort | None) -> dict[str, Any]:
    if short is None:
        return {}
    return {
        "arrival_rps": rounded(short.arrival_rps, 1), "queued": short.queued, "running": short.running,
        "oldest_wait_s": rounded(short.oldest_wait_s, 1), "ttft_p50_s": rounded(short.ttft.p50_s, 2),
        "ttft_p95_s": rounded(short.ttft.p95_s, 2), "tpot_p50_s": rounded(short.tpot.p50_s, 4),
        "tpot_p95_s": rounded(short.tpot.p95_s, 4), "missed": rounded(short.violation_rate),
        "mismatch": rounded(short.mismatch, 2),
    }  # fmt: skip


def _long(long: VLong | None) -> dict[str, Any]:
    if long is None:
        return {}
    return {
        "in_time": _in_time(long),
        "jain": rounded(long.jain_index),
        "window_s": rounded(long.window_s, 0),
    }


def _in_time(long: VLong) -> float:
    """Returns the share of the settled requests of all tenants that met their SLOs; -1: none settled."""
    settled = sum(share.settled for share in long.tenants)
    return rounded(sum(share.ok for share in long.tenants) / settled) if settled else -1.0


def _engines(state: ConsoleState, now_s: float) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for worker, row in sorted(state.top.workers.items()):
        live = state.alive.get(worker)
        silent_s = live.silent_s(now_s) if live else 0.0
        if row.heartbeat is None or silent_s > FORGOTTEN_S:
            continue
        restarted = live is not None and now_s - live.restarted_s < RESTARTED_S
        samples = {sample.engine: sample for sample in row.telemetry.engines} if row.telemetry else {}
        for engine in sorted({*samples, *(info.engine for info in row.heartbeat.engines)}):
            sample = samples.get(engine)
            health, words = _health(row, sample, silent_s, restarted)
            rows[f"{worker} {engine}"] = {
                "worker": worker, "engine": engine, "pool": row.heartbeat.pool, "health": health, "words": words,
                "queued": row.telemetry.queued_count if row.telemetry else 0, **_sample(sample),
            }  # fmt: skip
    return rows


def _health(row: WorkerRow, sample: EngineSample | None, silent_s: float, restarted: bool) -> tuple[str, str]:
    """Returns `bad`, `warn` or `ok`, and what to say of it."""
    telemetry, heartbeat = row.telemetry, row.heartbeat
    if silent_s > SILENT_S:
        return "bad", f"worker silent for {silent_s:.0f} s"
    if restarted:
        return "bad", "worker restarted"
    if sample is None:
        return "warn", "no report yet"
    if not sample.up:
        return "bad", "engine down"
    if sample.asleep:
        waiting = telemetry.queued_asleep if telemetry is not None else 0
        return "warn", f"asleep, {waiting} of the queued wait for such engines" if waiting else "asleep"
    if sample.suspected:
        return "bad", "engine gives no token"
    if heartbeat is not None and heartbeat.draining:
        return "warn", "draining"
    if heartbeat is not None and heartbeat.observes:
        return "warn", f"observes: {heartbeat.observed_grants} grants after {heartbeat.observed_wait_s:.2f} s"
    if telemetry is not None and telemetry.bypass:
        return "warn", "bypass"
    if telemetry is not None and telemetry.control_expired:
        return "warn", "safe default"
    return "ok", "up"


def _sample(sample: EngineSample | None) -> dict[str, Any]:
    if sample is None:
        return {}
    return {
        "running": sample.running, "waiting": sample.waiting, "n_run": sample.n_run, "b_token": sample.b_token,
        "kv": rounded(sample.kv_usage, 2), "time_used": rounded(sample.time_used, 2),
        "utilisation": rounded(sample.utilisation, 2), "step_s": rounded(sample.step_s, 4),
        "preemptions": sample.preemptions_total,
    }  # fmt: skip


def tenants_of(state: ConsoleState, pool: str, overdue: Counter[str]) -> dict[str, Any]:
    """Returns the attainment of the tenants that offered most, and how many of their requests are overdue."""
    long = state.top.long.get(pool)
    most = sorted(long.tenants, key=lambda share: (-share.offered, share.name))[:MAX_TENANTS] if long else []
    return {
        share.name: attainment(share) | {"overdue": overdue[share.name], "weight": rounded(share.weight)}
        for share in most
    }


def attainment(share: ShareView) -> dict[str, Any]:
    """Returns the counts of a tenant, and the shares of its settled requests that met their SLOs; -1: none settled."""
    of = share.settled

    def part(count: int) -> float:
        return rounded(count / of) if of else -1.0

    return {
        "offered": share.offered, "settled": of, "ok": part(share.ok), "ttft_ok": part(share.ttft_ok),
        "tpot_ok": part(share.tpot_ok), "tokens": share.tokens_served,
    }  # fmt: skip
