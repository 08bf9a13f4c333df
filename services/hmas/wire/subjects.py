"""Names on NATS: the subject of each route in `hmas.contracts.routes`, which says who gets which message, and the keys
of the control bucket."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hmas.contracts.routes import ROUTES, Role, Route

PREFIX = "hmas.v1"
CONTROL_BUCKET = "hmas_control"  # last topology, layout, plan and tuple, pins
PAST_BUCKET = "hmas_past"  # blocks of past requests
LEASE_BUCKET = "hmas_leases"  # in the server's memory: leases
AUDIT_STREAM = "HMAS_AUDIT"
GAIN_STREAM = "HMAS_GAINS"


def token(name: str) -> str:
    """Returns a name as one part of a NATS subject (NATS calls it a token). Characters that NATS reserves, such as
    dots, wildcards and spaces, are percent-encoded with `=` in place of `%`; an empty name becomes `=`."""
    return quote(name, safe="-_").replace(".", "=2E").replace("%", "=").replace("~", "=7E") or "="


_ROUTES: dict[type, Route] = {route.message: route for route in ROUTES}


def subject_of(message: Any) -> str:
    """Returns the NATS subject on which a message is published. Raises KeyError if its type has no route."""
    route = _ROUTES[type(message)]
    return pattern(route, token(getattr(message, route.about)) if route.about else "")


def pattern(route: Route, about: str = "*") -> str:
    """Returns the NATS subject of a route's messages about one worker, gateway or pool. `about` is its encoded name; by
    default it is the wildcard `*` for all of them."""
    return f"{PREFIX}.{route.subject}.{about}" if route.about else f"{PREFIX}.{route.subject}"


AUDIT = f"{PREFIX}.audit"
GAINS = f"{PREFIX}.gain.*"
PLAN_KEY = "plan"
PLAN_PIN_KEY = "plan_pin"
QUERY_WHY = f"{PREFIX}.query.why"
QUERY_PAST = f"{PREFIX}.query.past"
QUERY_EFFECTS = f"{PREFIX}.query.effects"
QUERY_QUEUE = f"{PREFIX}.query.queue"
QUERY_JOBS = f"{PREFIX}.query.jobs"


def gain_subject(pool: str) -> str:
    return f"{PREFIX}.gain.{token(pool)}"


def topology_key(pool: str) -> str:
    return f"topology.{token(pool)}"


def layout_key(pool: str) -> str:
    return f"layout.{token(pool)}"


def tuple_key(worker: str) -> str:
    return f"tuple.{token(worker)}"


def pin_key(pool: str) -> str:
    return f"pin.{token(pool)}"


def past_key(pool: str, slot: int) -> str:
    return f"past.{token(pool)}.{slot}"


def engine_lease_key(pool: str, engine: str) -> str:
    return f"engine.{token(pool)}.{token(engine)}"


def lease_key(role: str) -> str:
    return f"lease.{token(role)}"


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the documentation page of NATS subjects and bucket keys."""

    name: str
    message: str
    sender: str
    receivers: str
    cadence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One kind of key of a bucket: its first part, what it is about, and who writes and who reads it."""

    name: str
    about: str
    value: str
    writers: tuple[Role, ...]
    readers: tuple[Role, ...]
    when: str
    bucket: str = CONTROL_BUCKET


def _row(route: Route) -> Subject:
    name = pattern(route, f"<{route.about}>")
    hearers = ", ".join(hearer.role for hearer in route.hearers)
    return Subject(name, route.message.__name__, ", ".join(route.publishers), hearers, route.cadence)


SUBJECTS: tuple[Subject, ...] = (
    *map(_row, ROUTES),
    Subject(QUERY_WHY, "WhyRequest, WhyReply", "`hmas why`, `hmas console`", "gateway", "request-reply"),
    Subject(QUERY_QUEUE, "QueueQuery, QueueReply", "`hmas console`", "worker", "request-reply, while looked at"),
    Subject(QUERY_JOBS, "empty, JobsReply", "`hmas jobs`, `hmas console`", "gateway", "request, replies"),
    Subject(QUERY_PAST, "PastQuery, PastReply", "meta, `hmas whatif`", "qos", "request-reply, block by block"),
    Subject(QUERY_EFFECTS, "EffectsRequest, EffectsReply", "`hmas why --effects`", "all services", "request, replies"),
)  # fmt: skip

_READERS = (Role.WORKER, Role.META, Role.STATERA)
KEYS: tuple[Key, ...] = (
    Key(name="topology", about="pool", value="TopologyDecision", writers=(Role.META,), readers=(Role.WORKER, Role.META),
        when="last value"),
    Key(name="layout", about="pool", value="LayoutDecision", writers=(Role.META,), readers=(Role.WORKER, Role.META),
        when="last value"),
    Key(name=PLAN_KEY, about="", value="PlanDecision", writers=(Role.META,), readers=(Role.META,), when="last value"),
    Key(name=PLAN_PIN_KEY, about="", value="PlanPin", writers=(Role.CONSOLE,), readers=(Role.META,),
        when="until lifted"),
    Key(name="tuple", about="worker", value="ControlTuple", writers=(Role.STATERA,),
        readers=(Role.WORKER, Role.STATERA), when="last value"),
    Key(name="pin", about="pool", value="Pin", writers=(Role.PIN, Role.CONSOLE), readers=(Role.META,),
        when="until lifted"),
    *(Key(name=f"lease.{role}", about="", value="Lease", writers=(role,), readers=(role,),
          when="compare-and-swap every second: the copy that writes, seen by its standby copies", bucket=LEASE_BUCKET)
      for role in (Role.QOS, Role.META, Role.STATERA)),
    Key(name="engine", about="pool>.<engine", value="Lease", writers=(Role.WORKER,), readers=(Role.WORKER,),
        when="compare-and-swap every second, of engines that workers discover: the worker that has the engine",
        bucket=LEASE_BUCKET),
    Key(name="clock", about="client", value="empty", writers=_READERS, readers=_READERS,
        when="on read of an aged value: tells the server's time"),
    Key(name="past", about="pool>.<slot", value="PastBlock", writers=(Role.QOS,), readers=(Role.QOS,),
        when="every 10 s while requests end: those of the last hour", bucket=PAST_BUCKET),
    Key(name="clock", about="client", value="empty", writers=(Role.QOS,), readers=(Role.QOS,),
        when="at the start: tells the server's time", bucket=PAST_BUCKET),
)  # fmt: skip
