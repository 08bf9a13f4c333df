"""A worker's Prometheus metrics, taken from what its agent reports."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from hmas.contracts.control import TopologyName
from hmas.contracts.execution import Declined, Ended, GatewayMessage, Grant, Refusal, Stop, WorkerMessage
from hmas.contracts.outcome import Outcome
from hmas.contracts.telemetry import EngineSample, WorkerTelemetry
from hmas.contracts.worker import ControlExpired, LayoutSwitched, TopologySwitched
from hmas.runtime.series import NamedSeries

_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_TPOT_SECONDS = (0.005, 0.01, 0.02, 0.04, 0.07, 0.1, 0.15, 0.25, 0.5, 1.0)
_ENGINE_GAUGES = {
    "up": "1 while the engine is up, also while it is asleep",
    "asleep": "1 while the engine is asleep: somebody has paused it, and it is granted nothing until it wakes",
    "suspected": "1 while the engine is suspected to have stopped: it left a request without a token for too long",
    "running": "Requests running on the engine",
    "waiting": "Requests waiting inside the engine",
    "kv_usage": "Share of the KV cache in use",
    "step_s": "Recent mean engine step, seconds",
    "n_run": "Limit on sequences in flight that is in force",
    "b_token": "Limit on decode tokens per engine step that is in force",
    "time_used": "Share of the time that a step has for sequences within the TPOT SLO worth keeping which what runs is "
    "expected to take; nothing is granted from 1 on, and 0 means that it limits nothing",
    "utilisation": "Use of the binding resource: the larger of KV use and step time over the TPOT SLO worth keeping",
}


class WorkerMetrics:
    """The worker's Prometheus metrics. A process makes one instance; tests give each a registry of its own."""

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        self._engines = {
            field: Gauge(f"hmas_worker_engine_{field}", text, ["engine"], registry=registry)
            for field, text in _ENGINE_GAUGES.items()
        }
        self._series = NamedSeries()
        self._make_controls(registry)
        self._make_requests(registry)

    def _make_controls(self, registry: CollectorRegistry) -> None:
        """Makes the metrics of what is in force and how it changes."""
        self._topology = Gauge("hmas_worker_topology", "1 for the active topology", ["topology"], registry=registry)
        self._bypass = Gauge("hmas_worker_bypass", "1 during an emergency bypass", registry=registry)
        self._stale = Gauge(
            "hmas_worker_control_expired",
            "1 while a safe default is in force, because no topology decision or no control tuple holds",
            registry=registry,
        )
        self._stale.set(1)
        self._switches = Counter("hmas_worker_topology_switches_total", "Topology switches", registry=registry)
        self._unknown = Counter(
            "hmas_worker_unknown_topologies_total",
            "Decisions for a topology that this worker does not have, so that it serves in order of arrival",
            registry=registry,
        )
        self._failed = Counter(
            "hmas_worker_failed_topologies_total",
            "Topologies of packages that were taken out because they raised, were slow or answered nonsense",
            registry=registry,
        )
        self._lanes = Gauge(
            "hmas_worker_lanes",
            "Queues by pace class that requests wait in; 1 while the layout is mixed",
            registry=registry,
        )
        self._lanes.set(1)
        self._layouts = Counter(
            "hmas_worker_layout_switches_total",
            "Changes of the layout, and classes merged with or parted from their neighbours",
            registry=registry,
        )
        self._expiries = Counter(
            "hmas_worker_control_expiries_total", "Controls that expired", ["control"], registry=registry
        )
        self._shown = ""  # the topology that is shown as active

    def _make_requests(self, registry: CollectorRegistry) -> None:
        """Makes the metrics of requests, from the queue to their end."""
        self._queued = Gauge("hmas_worker_queued_requests", "Requests queued", registry=registry)
        self._queued_tokens = Gauge(
            "hmas_worker_queued_tokens", "Tokens queued: prompts and predicted outputs", registry=registry
        )
        self._ended = Counter(
            "hmas_worker_requests_total", "Requests that ended or were refused here", ["outcome"], registry=registry
        )
        self._grants = Counter("hmas_worker_grants_total", "Requests granted to engines", registry=registry)
        self._declined = Counter(
            "hmas_worker_grants_declined_total", "Grants that gateways did not carry out", registry=registry
        )
        self._stops = Counter("hmas_worker_stops_total", "Grants that the worker asked back", registry=registry)
        self._tokens = Counter("hmas_worker_output_tokens_total", "Output tokens of ended requests", registry=registry)
        self._wait = Histogram("hmas_worker_queue_wait_seconds", "Time queued", buckets=_SECONDS, registry=registry)
        self._ttft = Histogram(
            "hmas_worker_ttft_seconds", "Arrival at the gateway to first token", buckets=_SECONDS, registry=registry
        )
        self._tpot = Histogram(
            "hmas_worker_tpot_seconds", "Time per output token", buckets=_TPOT_SECONDS, registry=registry
        )
        self._fence = Counter(
            "hmas_worker_fence_total",
            "Requests that ended by themselves, by whether their output stayed within the length bound of admission",
            ["covered"],
            registry=registry,
        )
        self._covered = {covered: self._fence.labels(str(covered).lower()) for covered in (True, False)}
        self._by_outcome = {outcome: self._ended.labels(outcome.value) for outcome in Outcome}

    def observe(self, telemetry: WorkerTelemetry) -> None:
        self._queued.set(telemetry.queued_count)
        self._queued_tokens.set(telemetry.queued_tokens)
        self._bypass.set(telemetry.bypass)
        self._stale.set(telemetry.control_expired)
        self._show_topology(telemetry.topology)
        for engine in telemetry.engines:
            self._show_engine(engine)
        self._series.keep({engine.engine for engine in telemetry.engines})
        for dispatched in telemetry.dispatched:
            self._wait.observe(dispatched.waited_s)
        for first in telemetry.first_tokens:
            self._ttft.observe(first.ttft_s)
        for finished in telemetry.finished:
            self._tokens.inc(finished.output_tokens)
            if finished.has_tpot:
                self._tpot.observe(finished.tpot_s)
            if not finished.censored:
                self._covered[finished.output_tokens <= finished.upper_output_tokens].inc()

    def heard(self, message: GatewayMessage) -> None:
        match message:
            case Ended(retryable=False):
                self._by_outcome[message.outcome].inc()
            case Declined():
                self._declined.inc()

    def sent(self, message: WorkerMessage) -> None:
        match message:
            case Grant():
                self._grants.inc()
            case Stop():
                self._stops.inc()
            case Refusal():
                self._by_outcome[message.outcome].inc()

    def switched(self, switch: TopologySwitched) -> None:
        self._switches.inc()

    def unknown(self) -> None:
        self._unknown.inc()

    def failed(self) -> None:
        self._failed.inc()

    def laid_out(self, switch: LayoutSwitched) -> None:
        self._layouts.inc()
        self._lanes.set(switch.lanes)

    def expired(self, expiry: ControlExpired) -> None:
        self._expiries.labels(expiry.control).inc()

    def _show_topology(self, active: str) -> None:
        if active != self._shown:
            for name in {*(each.value for each in TopologyName), self._shown or active, active}:
                self._topology.labels(name).set(name == active)
            self._shown = active

    def _show_engine(self, sample: EngineSample) -> None:
        for field, gauge in self._engines.items():
            self._series.of(sample.engine, gauge, sample.engine).set(getattr(sample, field))
