"""The page Queue: what waits at a worker in the order in which it will be served, with the slack of each request; and
the order in which another topology would serve the same requests."""

from typing import Any

from hmas.console.pages.numbers import chosen, rounded
from hmas.console.state import ConsoleState
from hmas.contracts.control import TopologyName
from hmas.contracts.queue import QueuedRow, QueueOrder, QueueTold

SHOWN = 200  # requests of an order
IN_FORCE = "in-force"


def asked_of(state: ConsoleState, choice: str) -> tuple[str, str]:
    """Returns the worker and the other topology that `choice` (`TOPOLOGY WORKER`) names: empty for the order in force,
    and an empty worker if none is known."""
    topology, _, worker = choice.partition(" ")
    return chosen(state.top.workers, worker), topology if topology in set(TopologyName) else ""


def view_queue(state: ConsoleState, now_s: float, choice: str) -> dict[str, Any]:
    """Returns the counts of a worker's queue, and its first requests by id, each with its place in the order that is
    shown and in the order in force."""
    worker, topology = asked_of(state, choice)
    asked = state.queues.get((worker, topology))
    view: dict[str, Any] = {
        "connected": state.connected,
        "workers": dict.fromkeys(sorted(state.top.workers), True),
        "worker": worker,
        "topology": topology or IN_FORCE,
        "choices": [IN_FORCE, *(name.value for name in TopologyName)],
        "state": "asked" if asked is None else "silent" if asked.told is None else "told",
        "rows": {},
    }
    if asked is not None and asked.told is not None:
        view |= _counts(asked.told, asked.at_s)
        view["rows"] = _rows(asked.told)
    return view


def _counts(told: QueueTold, at_s: float) -> dict[str, Any]:
    return {
        "in_force": told.topology, "at_s": rounded(at_s - told.age_s, 1), "waiting": told.waiting,
        "parked": told.parked, "relegated": told.relegated, "late": told.late, "running": told.running,
        "ordered": told.ordered,
    }  # fmt: skip


def _rows(told: QueueTold) -> dict[str, Any]:
    if not told.orders:
        return {}
    before = _places(told.orders[0])
    shown = told.orders[-1]  # the one that was asked for, if it is another
    return {row.request_id: _row(place, row, before) for place, row in enumerate(shown.rows, 1)}


def _places(order: QueueOrder) -> dict[str, int]:
    return {row.request_id: place for place, row in enumerate(order.rows, 1)}


def _row(place: int, row: QueuedRow, before: dict[str, int]) -> dict[str, Any]:
    told: dict[str, Any] = {
        "place": place, "tenant": row.tenant, "lane": row.lane, "prompt_tokens": row.prompt_tokens,
        "output_tokens": rounded(row.predicted_output_tokens, 0), "waited_s": rounded(row.waited_s, 1),
        "service_s": rounded(row.service_s, 2), "relegated": row.relegated, "known": row.known, "why": row.why,
    }  # fmt: skip
    if row.request_id in before:
        told["in_force"] = before[row.request_id]
    if row.start_s is not None and row.slack_s is not None:
        told |= {"start_s": rounded(row.start_s, 2), "slack_s": rounded(row.slack_s, 2), "late": row.slack_s < 0.0}
    return told
