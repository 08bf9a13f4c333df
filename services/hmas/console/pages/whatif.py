"""The page What-if: how a pool's last requests would have fared under a change, beside what happened and what is in
force."""

from typing import Any

from hmas.console.pages.numbers import chosen, rounded
from hmas.console.question import ENGINES, MINUTES, OBJECTIVES, WhatIfAnswer, WhatIfQuestion, question_of
from hmas.console.state import ConsoleState
from hmas.contracts.rehearsal import PastFigures, Rehearsal, Rehearsed, TenantGain
from hmas.entry_points import topology_names
from hmas.laws.rehearsal import described

MAX_TENANTS = 12
MAX_TOLD = 300


def view_whatif(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the question that `choice` has (see `question_of`), and its answer if the console keeps one."""
    pools = sorted({*state.top.short, *state.top.decisions})
    asked = question_of(choice)
    question = asked.model_copy(update={"pool": chosen(pools, asked.pool)})
    book = state.whatif
    told = book.told.get(question)
    view: dict[str, Any] = {
        "connected": state.connected,
        "pools": dict.fromkeys(pools, True),
        "question": question.model_dump(mode="json"),
        "minutes": list(MINUTES),
        "topologies": ["", *topology_names()],
        "objectives": list(OBJECTIVES),
        "engines": list(ENGINES),
        "lacks": book.lacks,
        "busy": book.running is not None,
        "state": "runs" if book.running == question else "none" if told is None else "told" if told.found else "failed",
        "error": told.error if told else "",
        "answer": {},
    }
    if view["state"] == "runs":
        view["since_s"] = rounded(now_s - book.began_s, 0)
    elif told is not None and told.found is not None:
        view["answer"] = _answer(question, told, told.found)
    return view


def _answer(question: WhatIfQuestion, told: WhatIfAnswer, found: Rehearsal) -> dict[str, Any]:
    candidate = next(iter(found.candidates), None)
    rows = {"observed": _figures(found.observed), "in_force": _figures(found.in_force)}
    if candidate is not None:
        rows["candidate"] = _figures(candidate.figures) | _gain(candidate)
    return {
        "at_s": rounded(told.at_s, 1), "window_s": rounded(found.window_s, 0), "drawn": found.drawn,
        "abstains": found.abstains[:MAX_TOLD], "in_force": told.in_force,
        "candidate": described(candidate.policy)[:MAX_TOLD] if candidate else "",
        "rows": rows, "tenants": _tenants(found, candidate), "switch": _switch(question, found),
    }  # fmt: skip


def _switch(question: WhatIfQuestion, found: Rehearsal) -> str:
    """Returns the topology that a pin would set as it was simulated; empty where something else was changed as well,
    or the simulation is not to be believed."""
    alone = question.topology and not (question.objective or question.engines or question.slo)
    return str(question.topology) if alone and found.candidates and not found.abstains else ""


def _figures(figures: PastFigures) -> dict[str, Any]:
    return {
        "requests": figures.requests, "on_time": rounded(figures.on_time),
        "ttft_p50_s": rounded(figures.ttft_p50_s), "ttft_p95_s": rounded(figures.ttft_p95_s),
    }  # fmt: skip


def _gain(of: Rehearsed | TenantGain) -> dict[str, Any]:
    return {"gain": rounded(of.gain, 4), "low": rounded(of.low, 4), "high": rounded(of.high, 4)}


def _tenants(found: Rehearsal, candidate: Rehearsed | None) -> dict[str, Any]:
    """Returns by tenant the share on time that was observed, simulated and would have been, and the gain."""
    rows: dict[str, dict[str, Any]] = {
        share.tenant: {"requests": share.requests, "observed": rounded(share.on_time)}
        for share in found.observed.tenants[:MAX_TENANTS]
    }
    columns = {"in_force": found.in_force, **({"candidate": candidate.figures} if candidate else {})}
    for name, figures in columns.items():
        for share in figures.tenants:
            if share.tenant in rows:
                rows[share.tenant][name] = rounded(share.on_time)
    for gain in candidate.tenants if candidate else ():
        if gain.tenant in rows:
            rows[gain.tenant] |= _gain(gain)
    return rows
