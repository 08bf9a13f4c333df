"""The command `hmas why`: asks every gateway for the timeline of a recent request, and every agent for its
steps that concern it."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.contracts.control import AuditRecord
from hmas.operator.client import connected, replies_to
from hmas.operator.safe_cells import safe_cells
from hmas.operator.split_words import in_words
from hmas.runtime.bus import Bus
from hmas.runtime.harmless_text import harmless
from hmas.wire.codec import WireError, decode
from hmas.wire.subjects import AUDIT_STREAM, QUERY_EFFECTS, QUERY_WHY
from hmas.wire.v1 import observe_pb2

TIMEOUT_S = 2.0
QUIET_S = 0.7  # every process answers for itself; after this long without a reply no more are expected
AUDITS_READ = 300  # newest records of the audit among which the outcome of a switch is looked for


async def ask_why(bus: Bus, request_id: str) -> dict[str, Any] | None:
    """Returns the timeline of a request; None if no gateway remembers it. Raises MeshUnreachable."""
    async with connected(bus):
        timeline = await timeline_of(bus, request_id)
        if timeline is not None and "job" in timeline:
            timeline["stages"] = await stages_of(bus, timeline["job"]["job"])
        if timeline is not None and (in_force := timeline.get("in_force_now")):
            in_force["came"] = await what_came(bus, timeline["pool"], in_force["topology"])
        return timeline


async def what_came(bus: Bus, pool: str, topology: str) -> str | None:
    """Returns what the audit says that the pool's switch to the topology brought, which is told some minutes after it;
    None while it is not told, or where the audit cannot be read. Asks over a bus that is connected."""
    import nats.errors

    js = bus.client.jetstream(timeout=TIMEOUT_S)
    try:
        state = (await js.stream_info(AUDIT_STREAM)).state
        for number in range(state.last_seq, max(state.first_seq, state.last_seq - AUDITS_READ + 1) - 1, -1):
            message = await js.get_msg(AUDIT_STREAM, number)
            record = decode(AuditRecord, message.data or b"")
            if (record.source, record.pool) != ("meta", pool):
                continue
            if record.kind == "outcome" and record.decision == topology:
                return record.reason
            if record.kind not in ("rejected", "layout", "outcome") and record.decision != topology:
                return None  # before the switch
    except (nats.errors.Error, WireError):
        pass
    return None


async def timeline_of(bus: Bus, request_id: str) -> dict[str, Any] | None:
    """Asks over a bus that is connected; None if no gateway remembers the request. Raises nats.errors.Error."""
    import nats.errors

    query = observe_pb2.WhyRequest(request_id=request_id).SerializeToString()
    try:
        message = await bus.client.request(QUERY_WHY, query, timeout=TIMEOUT_S)
    except (nats.errors.NoRespondersError, nats.errors.TimeoutError):
        return None
    reply = observe_pb2.WhyReply.FromString(message.data)
    timeline: dict[str, Any] = json.loads(reply.timeline_json)
    return timeline


async def stages_of(bus: Bus, job: str) -> list[dict[str, Any]]:
    """Returns the stages of a job that gateways remember, each with the seconds since the first one that it began at.
    Asks over a bus that is connected."""
    query = observe_pb2.WhyRequest(job=job).SerializeToString()
    stages: list[dict[str, Any]] = []
    async for data in replies_to(bus, QUERY_WHY, query, QUIET_S):
        stages += json.loads(observe_pb2.WhyReply.FromString(data).timeline_json)
    stages.sort(key=lambda stage: stage["began_unix_s"])
    return [
        {"began_s" if name == "began_unix_s" else name: value - stages[0][name] if name == "began_unix_s" else value
         for name, value in stage.items()}
        for stage in stages
    ]  # fmt: skip


def render_why(timeline: dict[str, Any]) -> RenderableType:
    """Renders a timeline: its plain fields and each group of them as one table, a list of flat groups (attempts) as one
    with a row each, and one of nested groups (runs with what happened in the worker's queue) as a table each."""
    parts: list[RenderableType] = []
    if timeline.get("why"):
        parts.append(Text(harmless(timeline["why"]), style="bold"))
    plain = {k: v for k, v in timeline.items() if k != "why" and not isinstance(v, dict | list)}
    parts.append(_section("request", plain))
    for name, value in timeline.items():
        if isinstance(value, dict):
            parts.append(_section(name, value))
        elif isinstance(value, list) and any(isinstance(v, dict) for each in value for v in each.values()):
            parts += [_section(f"{name.removesuffix('s')} {i}", in_words(each)) for i, each in enumerate(value, 1)]
        elif isinstance(value, list) and value:
            parts.append(_rows(name, value))
    return Group(*parts)


def _rows(title: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="dim")
    for name in rows[0]:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*safe_cells(map(_told, row.values())))
    return table


def _section(title: str, fields: dict[str, Any]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields.items():
        if isinstance(value, dict):
            value = ", ".join(f"{k.replace('_', ' ')} {_told(v)}" for k, v in value.items())
        table.add_row(*safe_cells((Text(name.replace("_", " "), style="dim"), _told(value))))
    return table


def _told(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


async def ask_effects(bus: Bus, request_id: str) -> list[observe_pb2.EffectsReply]:
    """What each process remembers of its agent's steps that concern the request, by its own id."""
    query = observe_pb2.EffectsRequest(request_id=request_id).SerializeToString()
    async with connected(bus):
        replies = [
            observe_pb2.EffectsReply.FromString(data) async for data in replies_to(bus, QUERY_EFFECTS, query, QUIET_S)
        ]
    return sorted(replies, key=lambda reply: (reply.role, reply.name))


def effects_data(replies: Sequence[observe_pb2.EffectsReply]) -> list[dict[str, Any]]:
    """The steps of all, oldest first. `age_s`: how long ago, by the clock of the agent's own process."""
    steps = [
        {
            "role": reply.role,
            "name": reply.name,
            "age_s": step.age_s,
            "event": json.loads(step.event_json),
            "effects": json.loads(step.effects_json),
        }
        for reply in replies
        for step in reply.steps
    ]
    return sorted(steps, key=lambda step: -step["age_s"])


def render_effects(replies: Sequence[observe_pb2.EffectsReply]) -> RenderableType:
    """A line an event and a line an effect of it, since the first step; then who answered."""
    steps = effects_data(replies)
    lines = []
    for step in steps:
        at_s = steps[0]["age_s"] - step["age_s"]
        lines.append(Text(harmless(f"{at_s:9.4f} s  {step['name']}  {_value(step['event'])}")))
        lines += [Text(harmless(f"             → {_value(effect)}"), style="bold") for effect in step["effects"]]
    for reply in replies:
        title = f"{reply.name}: {len(reply.steps)} steps of the last {reply.since_s:.0f} s"
        lines.append(Text(title + (f", {reply.left_out} more left out" if reply.left_out else ""), style="dim"))
    return Group(*lines)


def _value(data: Any) -> str:
    """A plain value as its class would show itself."""
    if isinstance(data, dict):
        name, fields = data["$"], {k: v for k, v in data.items() if k != "$"}
        if set(fields) == {"value"}:  # a member of an enumeration
            return str(fields["value"])
        return f"{name}({', '.join(f'{k}={_value(v)}' for k, v in fields.items())})"
    if isinstance(data, list):
        return f"[{', '.join(map(_value, data))}]"
    return _told(data)
