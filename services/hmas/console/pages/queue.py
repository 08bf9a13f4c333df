"""The page Queue: what waits at a worker in the order in which it will be served, with the slack of each request; and
the order in which another topology would serve the same requests."""

from typing import Any

from hmas.console.pages.numbers import chosen, rounded
from hmas.console.state import ConsoleState
from hmas.contracts.queue import QueuedRow, QueueOrder, QueueReply
from hmas.entry_points import topology_names

SHOWN = 200  # requests of an order
IN_FORCE = "in-force"


def asked_of(state: ConsoleState, choice: str) -> tuple[str, str]:
    """Returns the worker and the other topology that `choice` (`TOPOLOGY WORKER`) names: empty for the order in force,
    and an empty worker if none is known."""
    topology, _, worker = choice.partition(" ")
    return chosen(state.top.workers, worker), topology if topology in topology_names() else ""


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
        "choices": [IN_FORCE, *topology_names()],
        "state": "asked" if asked is None else "silent" if asked.told is None else "told",
        "rows": {},
    }
    if asked is not None and asked.told is not None:
        view |= _counts(asked.told, asked.at_s)
        view["rows"] = _rows(asked.told)
    return view


def _counts(queue: QueueReply, at_s: float) -> dict[str, Any]:
    return {
        "in_force": queue.topology, "at_s": rounded(at_s - queue.age_s, 1), "waiting": queue.waiting,
        "parked": queue.parked, "relegated": queue.relegated, "late": queue.late, "running": queue.running,
        "ordered": queue.ordered,
    }  # fmt: skip


def _rows(queue: QueueReply) -> dict[str, Any]:
    if not queue.orders:
        return {}
    before = _places(queue.orders[0])
    shown = queue.orders[-1]  # the one that was asked for, if it is another
    return {row.request_id: _row(place, row, before) for place, row in enumerate(shown.rows, 1)}


def _places(order: QueueOrder) -> dict[str, int]:
    return {row.request_id: place for place, row in enumerate(order.rows, 1)}


def _row(place: int, row: QueuedRow, before: dict[str, int]) -> dict[str, Any]:
    view: dict[str, Any] = {
        "place": place, "tenant": row.tenant, "lane": row.lane, "prompt_tokens": row.prompt_tokens,
        "output_tokens": rounded(row.predicted_output_tokens, 0), "waited_s": rounded(row.waited_s, 1),
        "service_s": rounded(row.service_s, 2), "relegated": row.relegated, "known": row.known, "why": row.why,
    }  # fmt: skip
    if row.request_id in before:
        view["in_force"] = before[row.request_id]
    if row.start_s is not None and row.slack_s is not None:
        view |= {"start_s": rounded(row.start_s, 2), "slack_s": rounded(row.slack_s, 2), "late": row.slack_s < 0.0}
    return view
