"""Names on NATS: the subject of each route in `hmas.contracts.routes`, which says who gets which message, and the keys
of the control bucket."""

from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from hmas.contracts.routes import ROUTES, Route

PREFIX = "hmas.v1"
CONTROL_BUCKET = "hmas_control"  # last topology and tuple, pins, leases
AUDIT_STREAM = "HMAS_AUDIT"


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


def all_of(message: type) -> str:
    """Returns the NATS subject, with a wildcard, on which all messages of this type come. Raises KeyError if it has no
    route."""
    return pattern(_ROUTES[message])


AUDIT = f"{PREFIX}.audit"
QUERY_WHY = f"{PREFIX}.query.why"
QUERY_EFFECTS = f"{PREFIX}.query.effects"


def topology_key(pool: str) -> str:
    return f"topology.{token(pool)}"


def tuple_key(worker: str) -> str:
    return f"tuple.{token(worker)}"


def pin_key(pool: str) -> str:
    return f"pin.{token(pool)}"


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


def _row(route: Route) -> Subject:
    name = pattern(route, f"<{route.about}>")
    hearers = ", ".join(hearer.role for hearer in route.hearers)
    return Subject(name, route.message.__name__, ", ".join(route.publishers), hearers, route.cadence)


SUBJECTS: tuple[Subject, ...] = (
    *map(_row, ROUTES),
    Subject(QUERY_WHY, "WhyRequest, WhyReply", "`hmas why`", "gateway", "request-reply"),
    Subject(QUERY_EFFECTS, "EffectsRequest, EffectsReply", "`hmas why --effects`", "all services", "request, replies"),
)  # fmt: skip

KEYS: tuple[Subject, ...] = (
    Subject("topology.<pool>", "TopologyDecision", "meta", "workers, meta", "last value"),
    Subject("tuple.<worker>", "ControlTuple", "statera", "worker, statera", "last value"),
    Subject("pin.<pool>", "Pin", "`hmas pin`", "meta", "until lifted"),
    Subject("lease.<role>", "Lease", "qos, meta, statera", "their standby copies", "compare-and-swap every second"),
    Subject("clock.<client>", "empty", "whoever reads an aged value", "-", "on read; tells the server's time"),
)
