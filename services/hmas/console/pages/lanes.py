"""The page Lanes: a lane for each engine, a bar for each request that ended on it: its wait, prefill and decode. One
that two engines served has a bar on each: its prompt on one, on the other how long KV was read, and its decode."""

from typing import Any

from hmas.console.lane_spans import LaneSpan, SpanLeg
from hmas.console.pages.numbers import chosen, rounded
from hmas.console.state import MAX_SPANS, SPANS_S, ConsoleState

SHOWN_S = SPANS_S
SHOWN = 400  # the newest


def view_lanes(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the engines of the worker `choice` (empty: all engines) and the spans of the last minute, newest last."""
    rows = {worker: row for worker, row in state.top.workers.items() if row.telemetry is not None}
    worker = chosen(rows, choice) if choice else ""
    lanes = {
        (name, engine.engine): True
        for name, row in sorted(rows.items())
        if name == worker or not worker
        for engine in (row.telemetry.engines if row.telemetry else ())
    }
    spans = [span for span in state.spans if span.ended_s > now_s - SHOWN_S and (span.worker, span.engine) in lanes]
    is_cut = len(state.spans) == MAX_SPANS and state.spans[0].ended_s > now_s - SHOWN_S  # some may be forgotten
    ended = sum(state.ends.counts[lane] for lane in lanes) if is_cut else len(spans)
    return {
        "connected": state.connected,
        "workers": dict.fromkeys(sorted(rows), True),
        "worker": worker,
        "lanes": {f"{name} {engine}": True for name, engine in lanes},
        "spans": {str(span.number): _span(span) for span in spans[-SHOWN:]},
        "left_out": max(0, ended - min(len(spans), SHOWN)),
        "shown_s": SHOWN_S,
    }


def _span(span: LaneSpan) -> dict[str, Any]:
    view = {
        "lane": f"{span.worker} {span.engine}", "request_id": span.request_id, "tenant": span.tenant,
        "outcome": span.outcome.value, "leg": span.leg.value, "queued_s": rounded(span.queued_s),
        "granted_s": rounded(span.granted_s), "first_s": rounded(span.first_s), "ended_s": rounded(span.ended_s),
    }  # fmt: skip
    return view if span.leg is SpanLeg.WHOLE else {**view, "partner": span.partner}
