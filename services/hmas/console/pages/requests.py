"""The page Request: the requests that settled last, and one request's way against its deadline and its prediction."""

from collections.abc import Iterable, Mapping
from typing import Any

from hmas.console.pages.numbers import rounded
from hmas.console.state import ConsoleState, RecentRequest


def view_requests(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the requests that settled last, by their ids."""
    return {
        "connected": state.connected,
        "recent": {row.settled.request_id: _row(row) for row in state.recent},
    }


def _row(row: RecentRequest) -> dict[str, Any]:
    settled = row.settled
    view = {
        "at_s": rounded(row.at_s, 1), "pool": row.pool, "tenant": settled.tenant, "task": settled.task.value,
        "outcome": settled.outcome.value, "verdict": ("met" if row.ok else "missed") if row.judged else "not judged",
        "relegated": settled.relegated, "output_tokens": settled.output_tokens,
    }  # fmt: skip
    return view if settled.ttft_s is None else {**view, "ttft_s": rounded(settled.ttft_s)}


def view_request(timeline: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the picture of a gateway's timeline (`hmas why`): its sentence `why`, empty until the request has ended;
    bars and marks in s since the request's arrival, and all its facts as text. What has not happened is left out."""
    cost, tags, slo = (timeline.get(name) or {} for name in ("predicted_cost", "tags", "slo"))
    bars = [bar for run in timeline.get("runs", ()) for bar in _bars(run)]
    runs = [run["started_s"] for run in timeline.get("runs", ()) if run.get("started_s") is not None]
    waited_s = min(runs, default=timeline.get("total_s"))
    if waited_s is not None:
        bars.insert(0, {"what": "waits", "from_s": 0.0, "until_s": rounded(waited_s, 6)})
    if cost.get("total_s") is not None:
        begun_s = min(runs, default=0.0)
        ends_s = begun_s + cost["total_s"]
        bars.append({"what": "predicted", "from_s": rounded(begun_s, 6), "until_s": rounded(ends_s, 6)})
    tokens = timeline.get("output_tokens") or tags.get("predicted_output_tokens") or 0
    marks = [
        ("first token due", None if slo.get("whole") else slo.get("ttft_s")),
        ("last token due", _due_s(slo, tokens)),
        ("first token", timeline.get("ttft_s")),
        ("end", timeline.get("total_s")),
    ]
    return {
        "request_id": str(timeline.get("request_id", "")),
        "outcome": str(timeline.get("outcome", "")),
        "why": str(timeline.get("why", "")),
        "bars": bars,
        "marks": [{"what": what, "at_s": rounded(at_s, 6)} for what, at_s in marks if at_s is not None],
        "facts": [{"what": what, "is": told} for what, told in _facts("", timeline) if what != "why"],
    }


def _due_s(slo: Mapping[str, Any], output_tokens: float) -> float | None:
    """Returns when the last token is due: the stated TTLT, otherwise SLO_ttft + SLO_tpot * n (DESIGN §8)."""
    if slo.get("ttlt_s") is not None:
        return float(slo["ttlt_s"])
    if slo.get("ttft_s") is None or slo.get("tpot_s") is None:
        return None
    return float(slo["ttft_s"] + slo["tpot_s"] * output_tokens)


def _bars(run: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    """Yields a run's prefill and decode, as far as they have come. If another engine computes the prompt, the prefill
    is there, and the KV is handed over between both."""
    worker, engine, prefill = (run.get(name, "") for name in ("worker", "engine", "prefill_engine"))
    begun_s, first_s, ended_s = (run.get(name) for name in ("started_s", "first_token_s", "ended_s"))
    if prefill:
        computed_s = run.get("computed_s")
        yield from _bar("prefill", worker, prefill, begun_s, ended_s if computed_s is None else computed_s)
        yield from _bar("hand-over", worker, engine, computed_s, first_s)
        begun_s = computed_s
    if first_s is None:  # a gateway sees no first token of an answer in one piece
        yield from _bar("runs", worker, engine, begun_s, ended_s)
        return
    if not prefill:
        yield from _bar("prefill", worker, engine, begun_s, first_s)
    yield from _bar("decode", worker, engine, first_s, ended_s)


def _bar(what: str, worker: str, engine: str, from_s: float | None, until_s: float | None) -> Iterable[dict[str, Any]]:
    if from_s is not None and until_s is not None:
        where = f"{worker} {engine}".strip()
        yield {"what": what, "where": where, "from_s": rounded(from_s, 6), "until_s": rounded(until_s, 6)}


def _facts(name: str, value: Any) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _facts(f"{name} {key}".strip().replace("_", " "), inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value, 1):
            yield from _facts(f"{name} {number}", inner)
    elif isinstance(value, bool):
        yield name, "yes" if value else "no"
    elif value not in (None, ""):
        yield name, f"{value:.6g}" if isinstance(value, float) else str(value)
