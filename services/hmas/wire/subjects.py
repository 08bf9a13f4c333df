"""NATS subjects and buckets, once: name, message, who to whom, how often. `docs/subjects.md` is made from here."""

from dataclasses import dataclass
from urllib.parse import quote

PREFIX = "hmas.v1"
CONTROL_BUCKET = "hmas_control"  # last topology and tuple, pins, leases
AUDIT_STREAM = "HMAS_AUDIT"


def token(name: str) -> str:
    """A name as one subject token: what NATS reserves (dots, wildcards, spaces) is percent-encoded, % as `=`."""
    return quote(name, safe="-_").replace(".", "=2E").replace("%", "=").replace("~", "=7E") or "="


def worker_telemetry(worker: str) -> str:
    return f"{PREFIX}.telemetry.worker.{token(worker)}"


def gateway_telemetry(gateway: str) -> str:
    return f"{PREFIX}.telemetry.gateway.{token(gateway)}"


def qos_short(pool: str) -> str:
    return f"{PREFIX}.qos.short.{token(pool)}"


def qos_long(pool: str) -> str:
    return f"{PREFIX}.qos.long.{token(pool)}"


def control_topology(pool: str) -> str:
    return f"{PREFIX}.control.topology.{token(pool)}"


def control_tuple(worker: str) -> str:
    return f"{PREFIX}.control.tuple.{token(worker)}"


def control_pin(pool: str) -> str:
    return f"{PREFIX}.control.pin.{token(pool)}"


def registry(worker: str) -> str:
    return f"{PREFIX}.registry.{token(worker)}"


AUDIT = f"{PREFIX}.audit"
QUERY_WHY = f"{PREFIX}.query.why"
ALL_WORKER_TELEMETRY = f"{PREFIX}.telemetry.worker.*"
ALL_GATEWAY_TELEMETRY = f"{PREFIX}.telemetry.gateway.*"
ALL_SHORT = f"{PREFIX}.qos.short.*"
ALL_LONG = f"{PREFIX}.qos.long.*"
ALL_TOPOLOGIES = f"{PREFIX}.control.topology.*"
ALL_TUPLES = f"{PREFIX}.control.tuple.*"
ALL_PINS = f"{PREFIX}.control.pin.*"
ALL_WORKERS = f"{PREFIX}.registry.*"


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
    """One row of the subject table."""

    name: str
    message: str
    sender: str
    receivers: str
    cadence: str


SUBJECTS: tuple[Subject, ...] = (
    Subject(f"{PREFIX}.telemetry.worker.<worker>", "WorkerTelemetry", "worker", "qos, statera",
            "every 100 ms or 256 events"),
    Subject(f"{PREFIX}.telemetry.gateway.<gateway>", "GatewayTelemetry", "gateway", "qos",
            "every 100 ms or 256 events, one message per pool"),
    Subject(f"{PREFIX}.qos.short.<pool>", "VShort", "qos", "statera, meta, gateway", "250 ms"),
    Subject(f"{PREFIX}.qos.long.<pool>", "VLong", "qos", "meta", "5 s"),
    Subject(f"{PREFIX}.control.topology.<pool>", "TopologyDecision", "meta", "workers, statera, gateway",
            "on decision, repeated every valid_for_s / 3"),
    Subject(f"{PREFIX}.control.tuple.<worker>", "ControlTuple", "statera", "worker, gateway",
            "on change, repeated every valid_for_s / 3"),
    Subject(f"{PREFIX}.control.pin.<pool>", "Pin", "`hmas pin`", "meta", "on command; kept in the bucket"),
    Subject(f"{PREFIX}.registry.<worker>", "WorkerHeartbeat", "worker", "gateway, qos, statera, meta", "1 s"),
    Subject(AUDIT, "AuditRecord", "meta, statera", f"JetStream stream {AUDIT_STREAM}", "on decision"),
    Subject(QUERY_WHY, "WhyRequest, WhyReply", "`hmas why`", "gateways", "request-reply"),
)  # fmt: skip

KEYS: tuple[Subject, ...] = (
    Subject("topology.<pool>", "TopologyDecision", "meta", "workers, meta", "last value"),
    Subject("tuple.<worker>", "ControlTuple", "statera", "worker, statera", "last value"),
    Subject("pin.<pool>", "Pin", "`hmas pin`", "meta", "until lifted"),
    Subject("lease.<role>", "Lease", "qos, meta, statera", "their standby copies", "compare-and-swap every second"),
    Subject("clock.<client>", "empty", "whoever reads an aged value", "-", "on read; tells the server's time"),
)
