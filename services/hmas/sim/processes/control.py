"""QoS, the meta controller and statera in virtual time, and what carries out their effects."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hmas.contracts.control import AuditRecord, ControlTuple, Pin
from hmas.contracts.control_agents import (
    AskSelector,
    EpochGranted,
    KeepPast,
    PinChanged,
    PublishAudit,
    PublishGain,
    PublishLayout,
    PublishLong,
    PublishPlan,
    PublishShort,
    PublishTopology,
    PublishTuple,
    RehearsalAnswered,
    Rehearse,
    SearchPlans,
    SelectorAnswered,
    TimerTicked,
    WorkerReported,
)
from hmas.contracts.past import PastBlock
from hmas.contracts.rehearsal import LEARN_S, WARM_S
from hmas.contracts.routes import Role
from hmas.contracts.scheduling_gain import SchedulingGain
from hmas.contracts.telemetry import RequestFinished, WorkerTelemetry
from hmas.contracts.views import VLong
from hmas.laws.recording import AgentOrigin
from hmas.meta.agent import MetaAgent
from hmas.qos.agent import QosAgent
from hmas.sim.processes.ports import MeshPort
from hmas.sim.processes.simulated_bus import Party
from hmas.sim.recordings import RecordingFolder
from hmas.sim.regulated import RegulationTrace
from hmas.statera.agent import StateraAgent

# Carries out a rehearsal on the blocks of past requests; it runs meshes itself.
Rehearsing = Callable[[Rehearse, Sequence[PastBlock]], RehearsalAnswered]


class SimControl:
    """The control agents of one run. `views`, `audits` and `gains` (of the meta controller, each with its instant
    in s) and `regulation` keep what they told. `rehearsal` carries out what the meta controller wants rehearsed."""

    def __init__(self, mesh: MeshPort, rehearsal: Rehearsing | None) -> None:
        setup = mesh.setup
        self.qos = QosAgent(setup.qos_config)
        self.meta = MetaAgent(setup.meta_config, setup.selectors)
        self.statera = StateraAgent(setup.statera_config)
        self.views: list[VLong] = []
        self.audits: list[tuple[float, AuditRecord]] = []
        self.gains: list[tuple[float, SchedulingGain]] = []
        self.regulation = RegulationTrace()
        self._mesh, self._heap, self._setup, self._rehearsal = mesh, mesh.heap, setup, rehearsal
        self.handlers: dict[str, Mapping[type, Callable[[Any], None]]] = {
            "qos": {
                PublishShort: lambda e: mesh.publish(e.view),
                PublishLong: self._long,
                KeepPast: lambda _: None,  # the agent never restarts in a run
            },
            "meta": {
                PublishTopology: lambda e: mesh.publish(e.decision),
                PublishLayout: lambda e: mesh.publish(e.decision),
                PublishPlan: lambda e: mesh.publish(e.decision),
                PublishAudit: lambda e: self.audits.append((self._heap.now_s, e.record)),
                PublishGain: lambda e: self.gains.append((self._heap.now_s, e.gain)),
                AskSelector: self._ask,
                Rehearse: self._rehearse,
                SearchPlans: self._no_search,
            },
            "statera": {PublishTuple: lambda e: self._regulate(e.control), PublishAudit: lambda _: None},
        }

    def parties(self) -> dict[Role, list[Party]]:
        """Returns the agents that hear the bus. Statera does only if the setup has it."""
        statera: list[Party] = [(self._to_statera, {})] if self._setup.statera else []
        return {Role.QOS: [(self._to_qos, {})], Role.META: [(self._to_meta, {})], Role.STATERA: statera}

    def record(self, recording: RecordingFolder) -> None:
        """Begins the recordings of the agents."""
        recording.begin(AgentOrigin(Role.QOS, "qos", self._setup.qos_config))
        recording.begin(AgentOrigin(Role.META, "meta", self._setup.meta_config))
        recording.begin(AgentOrigin(Role.STATERA, "statera", self._setup.statera_config))

    def start(self, pools: Iterable[str], learnt: tuple[str, tuple[RequestFinished, ...]]) -> None:
        """Gives the agents their epochs, and tells statera the requests that ended before the run in the pool that
        `learnt` names, and the meta controller what the setup pins."""
        for step in (self._to_qos, self._to_meta, self._to_statera):
            step(EpochGranted(1))
        if learnt[1]:
            self._to_statera(WorkerReported(_report(*learnt)))
        setup = self._setup
        if setup.pin is not None:
            for pool in pools:
                pin = Pin(pool, setup.pin, setup.hints, "experiment", setup.split)
                self._to_meta(PinChanged(pin))
                for at_s, split in setup.splits:
                    self._heap.at(at_s, self._to_meta, PinChanged(replace(pin, split=split)))

    def tick(self) -> None:
        self._to_qos(TimerTicked())
        self._to_meta(TimerTicked())
        if self._setup.statera:
            self._to_statera(TimerTicked())

    def _regulate(self, control: ControlTuple) -> None:
        self.regulation.controlled(control)
        self._mesh.publish(control)

    def _long(self, effect: PublishLong) -> None:
        self.views.append(effect.view)
        self._mesh.publish(effect.view)

    def _ask(self, effect: AskSelector) -> None:
        event = SelectorAnswered(effect.ask, effect.view.pool, self._setup.language_model.answer(effect), "")
        self._heap.after(self._setup.language_model.answer_s, self._to_meta, event)

    def _rehearse(self, effect: Rehearse) -> None:
        """Rehearses at once, and answers after the time that it would take beside what serves."""
        if self._rehearsal is None:
            raise RuntimeError("this run has no way to rehearse: run it by hmas_lab.sim.systems, or give MeshSim one")
        blocks = self.qos.past(self._heap.now_s, effect.pool, effect.window_s + WARM_S + LEARN_S)
        answered = self._rehearsal(effect, blocks)
        self._heap.after(answered.cpu_s, self._to_meta, answered)

    def _no_search(self, effect: SearchPlans) -> None:
        raise RuntimeError("no run searches for plans: leave the catalogue out, or set search_every_s to 0")

    def _to_qos(self, event: Any) -> None:
        self._mesh.step("qos", self.qos, event, self.handlers["qos"])

    def _to_meta(self, event: Any) -> None:
        self._mesh.step("meta", self.meta, event, self.handlers["meta"])

    def _to_statera(self, event: Any) -> None:
        self._mesh.step("statera", self.statera, event, self.handlers["statera"])


def _report(pool: str, finished: tuple[RequestFinished, ...]) -> WorkerTelemetry:
    """Returns a report of nothing but ended requests."""
    return WorkerTelemetry(
        worker="", pool=pool, queued_count=0, queued_tokens=0, topology="", bypass=False, control_expired=False,
        engines=(), queued=(), dispatched=(), first_tokens=(), finished=finished,
    )  # fmt: skip
