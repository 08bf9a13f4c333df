"""The command `hmas why`: asks every gateway for the timeline of a recent request."""

import json
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.mesh.client import connected
from hmas.runtime.bus import Bus
from hmas.wire.subjects import QUERY_WHY
from hmas.wire.v1 import observe_pb2

TIMEOUT_S = 2.0


async def ask_why(bus: Bus, request_id: str) -> dict[str, Any] | None:
    """Returns the timeline of a request; None if no gateway remembers it. Raises MeshUnreachable."""
    import nats.errors

    async with connected(bus):
        query = observe_pb2.WhyRequest(request_id=request_id).SerializeToString()
        try:
            message = await bus.client.request(QUERY_WHY, query, timeout=TIMEOUT_S)
        except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
            return None
    reply = observe_pb2.WhyReply.FromString(message.data)
    timeline: dict[str, Any] = json.loads(reply.timeline_json)
    return timeline


def render_why(timeline: dict[str, Any]) -> RenderableType:
    """Renders each section of a timeline, and each element of its lists (e.g. attempts), as one table."""
    parts: list[RenderableType] = []
    plain = {k: v for k, v in timeline.items() if not isinstance(v, dict | list)}
    parts.append(_section("request", plain))
    for name, value in timeline.items():
        if isinstance(value, dict):
            parts.append(_section(name, value))
        elif isinstance(value, list):
            parts.extend(_section(f"{name} {i + 1}", v) for i, v in enumerate(value) if isinstance(v, dict))
    return Group(*parts)


def _section(title: str, fields: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k} {_plain(v)}" for k, v in value.items())
        table.add_row(Text(name.replace("_", " "), style="dim"), _plain(value))
    return table


def _plain(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
