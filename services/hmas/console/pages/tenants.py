"""The page Tenants: attainment over the window of V_long, and what became of the requests that did not finish."""

from typing import Any

from hmas.console.pages.now import MAX_TENANTS, attainment, tenants_of
from hmas.console.pages.numbers import chosen, rounded
from hmas.console.state import WINDOW_S, ConsoleState


def view_tenants(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the tenants and task types of the pool `choice`, and by tenant how many of its requests ended otherwise
    than finished in the last `WINDOW_S` seconds, by reason."""
    pools = {*state.top.long, *(pool for pool, _, _ in (*state.reasons.counts, *state.promises.counts))}
    pool = chosen(pools, choice)
    long = state.top.long.get(pool)
    reasons: dict[str, dict[str, int]] = {}
    for (of_pool, tenant, outcome), count in sorted(state.reasons.counts.items()):
        if of_pool == pool and (tenant in reasons or len(reasons) < MAX_TENANTS):
            reasons.setdefault(tenant, {})[outcome.value] = count
    return {
        "connected": state.connected,
        "pools": dict.fromkeys(sorted(pools), True),
        "pool": pool,
        "tenants": tenants_of(state, pool, state.open.overdue(now_s)[pool]),
        "tasks": {share.name: attainment(share) for share in long.tasks} if long else {},
        "reasons": reasons,
        "promises": _promises(state, pool),
        "reasons_window_s": WINDOW_S,
        "window_s": rounded(long.window_s, 0) if long else 0.0,
        "jain": rounded(long.jain_index) if long else -1.0,
    }


def _promises(state: ConsoleState, pool: str) -> dict[str, dict[str, int]]:
    """Returns by tenant how many refused requests were promised a time to come back at, and the fates of those that did
    come back then."""
    rows: dict[str, dict[str, int]] = {}
    for (of_pool, tenant, fate), count in sorted(state.promises.counts.items()):
        if of_pool == pool and (tenant in rows or len(rows) < MAX_TENANTS):
            rows.setdefault(tenant, {})[fate.value] = count
    return rows
