"""The state that the agent's event handlers share, and the estimates that combine several parts of it."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from math import inf

from hmas.contracts.cadences import LIVE
from hmas.contracts.control import MIXED, Layout
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.execution import Load
from hmas.contracts.request import KindCost, Slo
from hmas.laws.kind_costs import cost_among, kinds_of
from hmas.laws.layout import engine_classes, engine_path, serving
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.controls import ControlState
from hmas.worker.agent.engines.admission import AdmissionGate
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.engines.memory_waits import MemoryWaits
from hmas.worker.agent.engines.service_view import ServiceView
from hmas.worker.agent.engines.sleep_waits import SleepWaits
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.estimates.applications import Applications
from hmas.worker.agent.estimates.length_bias import LengthBias
from hmas.worker.agent.estimates.meter import ServiceMeter
from hmas.worker.agent.estimates.prior import Prior
from hmas.worker.agent.estimates.tag_wait import TagWait
from hmas.worker.agent.gateways import Gateway, shares
from hmas.worker.agent.order.queue import RequestQueue
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology
from hmas.worker.agent.order_faults import OrderFaults
from hmas.worker.agent.reports import TelemetryReports
from hmas.worker.agent.split.rules import partnered, splits
from hmas.worker.agent.split.split_books import SplitBooks


class WorkerState:
    """Everything that one worker agent knows. `now_s` is the instant of the current step."""

    def __init__(self, config: WorkerConfig, topologies: Mapping[str, MakeTopology] = TOPOLOGIES) -> None:
        self.config = config
        self.queue = RequestQueue(config.max_queued, config.max_queued_tokens, topologies)
        self.unknown_topology: str | None = None  # the one in the decision in force, if this worker has none such
        self.order_faults = OrderFaults()
        self.gateways: dict[str, Gateway] = {}  # those with an open stream
        self.grants = 0  # number of the last grant
        self.fleet: dict[str, EngineState] = {}
        self.up: list[EngineState] = []
        self.awake: list[EngineState] = []  # those of `up` that are not asleep
        self.layout: Layout = MIXED  # as it is enforced
        self.layout_before: Layout | None = None  # None: no change since that was last told
        self.untagged: dict[str, QueueEntry] = {}  # parked until their tags come or are overdue
        self.lanes: dict[int, list[EngineState]] = {0: []}  # the engines that serve, by their lane
        self.gate = AdmissionGate(delta_frag=config.delta_frag, growth=config.growth, fenced=config.fenced)
        self.sleep_waits = SleepWaits(self.gate)
        self.memory_waits = MemoryWaits()
        self.split_books = SplitBooks(config.split)
        self.splits = False  # whether two of the engines that are awake can answer a request together
        self.controls = ControlState(config.worker, config.pool)
        self.prior = Prior(config.prior)
        self.applications = Applications(config.applications)
        self.length_bias = LengthBias(config.length_bias)
        self.tag_wait = TagWait(config.tag_wait)
        self.meter = ServiceMeter(config.meter)
        self.reports = TelemetryReports(
            config.telemetry_period_s, config.telemetry_events, config.running_report_period_s, config.tags_within_s
        )
        self.prefill_floor_s = inf  # least prefill predicted lately: what an engine's step costs without a prompt
        self.kind_floors_s: dict[EngineKind, float] = {}  # the same of each kind of engine, of several
        self.prior_floor_s = inf  # the same of the prior's estimates, which spread a step over a prompt
        self.offered_slos_s: deque[float] = deque(maxlen=config.offered)  # TPOT SLOs of the requests that came last
        self.aimed_s = -inf  # when engines were last told which of them is worth keeping
        self.lag_s = 0.0  # by how much the last cycle came late: news from engines may be late by as much
        self.draining = False
        self.engineless_since_s: float | None = None
        self.now_s = 0.0
        self._arrivals = 0
        self._cycled_s = inf

    def next_seq(self) -> int:
        self._arrivals += 1
        return self._arrivals

    def grantable(self, gateway: Gateway) -> bool:
        return gateway.grantable(self.now_s, (engine.name for engine in self.awake))

    def admit(self, entry: QueueEntry) -> None:
        """Lets a parked request wait in the order, if its gateway could carry out a grant now; but first it may have to
        wait a moment for its tags."""
        if self.now_s - entry.enqueued_s < self._patience_s(entry, alone=not self.queue.ready):
            self.untagged[entry.request.id] = entry
        else:
            self._enqueue(entry)

    def _enqueue(self, entry: QueueEntry) -> None:
        gateway = self.gateways[entry.gateway]
        if self.grantable(gateway):
            self.queue.wake(entry)
        else:
            gateway.parked[entry.request.id] = entry

    def _patience_s(self, entry: QueueEntry, *, alone: bool) -> float:
        """Returns how long a request waits for its tags: longer where the layout has classes and only its tags can tell
        its pace, or whether it is to be refused. `alone`: no other waits for an engine."""
        if entry.annotation is not None:
            return 0.0
        if self.layout.cuts_s and not entry.request.slo_stated:
            return self.config.tags_within_s
        if self.controls.bypass:
            return 0.0
        if not entry.request.relegate:
            return self.config.tags_within_s
        if not self.queue.uses_tags:
            return 0.0
        return self.tag_wait.patience_s(alone=alone)

    def admit_tagged(self, entry: QueueEntry) -> None:
        """Admits a request whose tags have come, if it waited for them."""
        if self.untagged.pop(entry.request.id, None) is not None:
            self.admit(entry)

    def admit_overdue(self) -> None:
        """Admits the requests that have waited long enough for their tags, or need not wait for them any more."""
        alone = not self.queue.ready
        for entry in list(self.untagged.values()):
            waited_s = self.now_s - entry.enqueued_s
            if waited_s >= self._patience_s(entry, alone=alone):
                if waited_s >= self.config.tag_wait.patience_s:
                    self.tag_wait.overdue()
                del self.untagged[entry.request.id]
                self._enqueue(entry)

    def park(self, entry: QueueEntry) -> None:
        """Takes a queued request out of the order until its gateway could carry out a grant."""
        self.queue.park(entry)
        self.gateways[entry.gateway].parked[entry.request.id] = entry

    def wake(self, gateway: Gateway) -> None:
        """Puts what is parked for a gateway back into the order; the pump parks again what still cannot be granted."""
        parked, gateway.parked = gateway.parked, {}
        for entry in parked.values():
            self.queue.wake(entry)

    def loads(self) -> list[tuple[Gateway, Load]]:
        """Returns the load reports for all gateways whose snapshot is complete."""
        synced = [gateway for gateway in self.gateways.values() if gateway.synced]
        if not synced:
            return []
        load = Load(
            queued=len(self.queue),
            queued_tokens=self.queue.queued_tokens,
            running=self.running,
            backlog_s=self.backlog_s(),
            draining=self.draining or self.standby,
            step_s=min(
                (engine.counts.step_now_s(self.now_s) for engine in self.awake if not engine.life.suspected),
                default=0.0,
            ),
        )
        slept = {engine.name: engine.life.asleep for engine in self.up}
        parts = shares(
            synced, ((engine.name, 0 if engine.life.asleep else self.static_n_run(engine)) for engine in self.up)
        )
        grew = {engine.name: engine.generating(self.now_s) for engine in self.up}
        updated = [
            tuple(replace(share, generating=grew[share.engine], asleep=slept[share.engine]) for share in part)
            for part in parts
        ]
        return [(gateway, replace(load, shares=part)) for gateway, part in zip(synced, updated, strict=True)]

    @property
    def standby(self) -> bool:
        """Whether the worker has none of the engines that it looks for, so that it takes no requests."""
        return self.config.discovers and not any(e.life.starts and not e.life.leaving for e in self.fleet.values())

    def see_engines(self) -> None:
        """Notes which engines are up and awake, and since when there is none that is not suspected. One that is asleep
        is none that is missing."""
        self.up = partnered([engine for engine in self.fleet.values() if engine.life.serves])
        self.awake = partnered([engine for engine in self.up if not engine.life.asleep])
        if any(engine.life.asleep or not engine.life.suspected for engine in self.up):
            self.engineless_since_s = None
        elif self.engineless_since_s is None:
            self.engineless_since_s = self.now_s
        self.splits = splits(self.config.split, self.awake)
        self.queue.price_for(kinds_of([engine.info.engine_kind for engine in self.awake or self.up]))
        self.arrange()
        self.sleep_waits.see_engines(self.now_s, self.up, self.queue.entries())

    def arrange(self) -> None:
        """Divides queue and engines into lanes by the layout in force. A class none of whose engines is awake and
        trusted is served by its neighbour's. What runs stays where it is."""
        layout, engines = self.controls.layout, self.awake or self.up
        places = {engine.name: engine_path(self.config.worker, engine.name) for engine in engines}
        of_place = engine_classes(layout, places.values())
        classes = {name: of_place[each] for name, each in places.items()}
        trusted = {classes[engine.name] for engine in engines if not engine.life.suspected}
        served_by = serving(len(layout.cuts_s) + 1, trusted or set(classes.values()))
        if self.queue.arrange(layout.cuts_s, served_by) or layout != self.layout:
            self.layout_before, self.layout = self.layout, layout
        self.lanes = {lane: [] for lane in self.queue.lanes}
        for engine in engines:
            self.lanes[served_by[classes[engine.name]]].append(engine)

    def static_n_run(self, engine: EngineState) -> int:
        """Returns the limit on an engine's sequences that holds while nobody regulates it."""
        return self.config.static_n_run or engine.sequences

    def see_demands(self) -> None:
        """Updates the smoothed demand of each gateway by its requests that run and wait now."""
        counts = Counter(entry.gateway for entry in self.queue.entries())
        for name, gateway in self.gateways.items():
            gateway.demand += self.config.gateways.smoothing * (counts[name] - gateway.demand)

    def see_cycle(self) -> None:
        self.lag_s = min(self.config.most_lag_s, max(0.0, self.now_s - self._cycled_s - LIVE.worker_cycle_s))
        self._cycled_s = self.now_s

    def cold_speed(self) -> float:
        return self.config.cold_speed_share * sum(engine.cap for engine in self.awake)

    @property
    def running(self) -> int:
        """How many requests the engines run, those included that were adopted on one that has not come up here."""
        return sum(len(engine.running) for engine in self.fleet.values()) - self.split_books.legs

    def queue_wait_s(self) -> float:
        """Returns the seconds until the requests that are queued now are served."""
        return self.meter.wait_s(self.queue.queued_s, self.cold_speed())

    def backlog_s(self) -> float:
        """Returns the seconds until the requests that are queued or running now are served, at the speed that is
        assumed of full engines. Gateways compare workers by it. By the speed that each measures, one that once measured
        little would be given little, and so would never measure more."""
        running_s = sum(e.remaining_s for engine in self.fleet.values() for e in engine.running.values())
        speed = self.cold_speed()
        return (self.queue.queued_s + running_s) / speed if speed > 0.0 else 0.0

    def see_slo(self, slo: Slo) -> None:
        """Notes the SLO of a request that came, whatever becomes of it. One that is judged on the whole answer asks
        for no pace."""
        if not slo.whole:
            self.offered_slos_s.append(slo.tpot_s)

    def aim(self) -> None:
        if self.now_s - self.aimed_s >= self.config.aim_every_s:
            self.aimed_s = self.now_s
            for lane, engines in self.lanes.items():
                own = [slo_s for slo_s in self.offered_slos_s if self.queue.paces.at(slo_s) == lane]
                for engine in engines:
                    engine.aim(own or self.offered_slos_s)

    def see_costs(self, costs: tuple[KindCost, ...]) -> None:
        """Updates the floors of predicted prefill times by a new prediction: that of what waits, and of each kind."""
        self.see_prefill(cost_among(costs, self.queue.kinds).ttft_s)
        if len(costs) > 1:
            floors = self.kind_floors_s
            self.kind_floors_s = {
                each.kind: self._floor(floors.get(each.kind, inf), each.cost.ttft_s) for each in costs
            }

    def see_prefill(self, predicted_s: float) -> None:
        """Updates the floor of predicted prefill times by a new one. The floor falls at once and rises slowly, so that
        it follows a predictor that has learnt better."""
        self.prefill_floor_s = self._floor(self.prefill_floor_s, predicted_s)

    def see_prior(self, ttft_s: float) -> None:
        self.prior_floor_s = self._floor(self.prior_floor_s, ttft_s)

    def prefill_s(self, entry: QueueEntry, engine: EngineState) -> float:
        """Returns the predicted seconds that the request's prompt adds to the engine's steps: its predicted prefill
        less the cost of a step, which an engine has anyway while it decodes."""
        prefill_s, floor_s = entry.prefill_s, self.prefill_floor_s
        if entry.annotation is None:
            floor_s = max(floor_s, self.prior_floor_s)
        elif entry.differs:
            prefill_s = entry.cost(engine.info).ttft_s
            floor_s = self.kind_floors_s.get(engine.info.engine_kind, floor_s)
        return max(0.0, prefill_s - floor_s)

    def service_view(self, lane: int) -> ServiceView:
        engines = tuple(engine.occupancy(self.now_s) for engine in self.lanes[lane])
        return ServiceView(self.now_s, engines, self.prefill_floor_s)

    def _floor(self, floor_s: float, seen_s: float) -> float:
        return seen_s if seen_s < floor_s else floor_s + self.config.floor_rise * (seen_s - floor_s)
