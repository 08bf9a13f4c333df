"""Whatever comes over NATS or a stream, agents step on: nothing raises, nothing grows without bound, and what they
decide can be sent. The long form (HMAS_SOAK) takes 100,000 payloads each."""

import gc
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any, get_args

import pytest

from hmas.contracts.control import TopologyDecision, TopologyName, TopologyReceived
from hmas.contracts.control_agents import EpochGranted, TimerTicked
from hmas.contracts.execution import GatewayMessage, WorkerMessage
from hmas.contracts.gateway import FromWorker, GatewayTicked, ToWorker
from hmas.contracts.request import TagSource
from hmas.contracts.routes import ROUTES, Role
from hmas.contracts.worker import (
    CycleTicked,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    HeartbeatDue,
    PublishTelemetry,
    ToGateway,
)
from hmas.gateway.agent import GatewayAgent, GatewayConfig
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import MetaConfig
from hmas.operator.mesh_view import MeshView
from hmas.perception.agent import PerceptionAgent
from hmas.perception.agent.agent import PerceptionConfig
from hmas.prediction.agent import PredictionAgent
from hmas.prediction.agent.agent import PredictionConfig
from hmas.prediction.agent.linear import LinearCostModel, LinearProfile
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import StateraConfig
from hmas.wire import codec, execution
from hmas.wire.v1 import execution_pb2 as pb
from hmas.worker.agent import WorkerAgent
from hmas.worker.agent.config import WorkerConfig
from tests.builders.control import topology_decision
from tests.fuzz.mutations import Genuine, mutated, payload
from tests.worker.builders import ENGINE

pytestmark = pytest.mark.timeout(900)
PAYLOADS = 100_000 if "HMAS_SOAK" in os.environ else 4_000
STEP_S = 0.004
PROFILE = LinearProfile(
    model="", hardware="", prefill_base=0.01, prefill_per_token=1e-4, decode_base=0.01, decode_per_running=1e-4
)
MAX_GROWTH_BYTES = 48 * 2**20  # in the second half; names of a flood may still fill bounded tables


def rss_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:  # not a file of ours
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@dataclass
class Mesh:
    """One agent of each role, stepped by what its role hears. Every effect that is a message is encoded."""

    now_s: float = 1000.0
    topology: str = ""  # of the worker's last report

    def __post_init__(self) -> None:
        worker = WorkerAgent(WorkerConfig(worker="w1", incarnation="i1", address="", pool="m"))
        self.agents: dict[Role, Any] = {
            Role.QOS: QosAgent(QosConfig()),
            Role.META: MetaAgent(MetaConfig()),
            Role.STATERA: StateraAgent(StateraConfig()),
            Role.WORKER: worker,
            Role.GATEWAY: GatewayAgent(GatewayConfig(gateway="g1")),
            Role.PERCEPTION: PerceptionAgent(PerceptionConfig(version="v1", source=TagSource.RULES)),
            Role.PREDICTION: PredictionAgent(PredictionConfig(), LinearCostModel([PROFILE])),
        }
        self.top = MeshView()
        self.malformed: Counter[str] = Counter()
        self.heard: Counter[str] = Counter()
        self.step(Role.WORKER, EngineWentUp(ENGINE))
        for gateway in ("g1", "g2"):
            self.step(Role.WORKER, GatewayConnected(gateway))
        for role in (Role.QOS, Role.META, Role.STATERA):
            self.step(role, EpochGranted(7))

    def step(self, role: Role, event: Any) -> list[Any]:
        effects = list(self.agents[role].step(self.now_s, event))
        for effect in effects:
            if isinstance(effect, PublishTelemetry):
                self.topology = effect.telemetry.topology
            for part in (getattr(effect, name, None) for name in getattr(effect, "__slots__", ())):
                if type(part) in codec.wire_types():
                    sent = codec.encode(part)
                    if role in (Role.QOS, Role.META, Role.STATERA):
                        codec.decode(type(part), sent)  # and the others take it
        return effects

    def hear(self, route: Any, data: bytes) -> None:
        try:
            value = codec.decode(route.message, data)
        except codec.WireError:
            self.malformed[route.message.__name__] += 1
            return
        self.heard[route.message.__name__] += 1
        for hearer in route.hearers:
            if hearer.role is Role.TOP:
                self.top.hear(self.now_s, value)
            elif hearer.event is not None:
                self.step(hearer.role, hearer.event(value))

    def time_passes(self, seconds: float = STEP_S) -> None:
        before, self.now_s = self.now_s, self.now_s + seconds
        for role in (Role.QOS, Role.META, Role.STATERA, Role.PERCEPTION, Role.PREDICTION):
            if int(before / 0.05) != int(self.now_s / 0.05):
                self.step(role, TimerTicked())
        if int(before / 0.02) != int(self.now_s / 0.02):
            self.step(Role.WORKER, CycleTicked())
            self.step(Role.GATEWAY, GatewayTicked())
        if int(before) != int(self.now_s):
            self.step(Role.WORKER, HeartbeatDue())

    def topology_in_force(self) -> str:
        """Waits for the worker's next report."""
        self.time_passes(0.2)
        self.time_passes(0.2)
        return self.topology


@contextmanager
def bounded_growth() -> Iterator[Callable[[int], None]]:
    """Yields a function that is told how many payloads were handled; asserts that the second half costs no memory."""
    half: list[int] = []

    def handled(count: int) -> None:
        if count == PAYLOADS // 2:
            half.append(rss_bytes())

    yield handled
    grown = rss_bytes() - half[0]
    print(f"{PAYLOADS} payloads; the second half grew the process by {grown / 2**20:.1f} MiB")
    assert grown < MAX_GROWTH_BYTES


GENUINE = topology_decision(TopologyName.EDF, epoch=7, reason="")


def test_nonsense_on_every_subject_stops_no_agent_and_what_is_genuine_is_in_force_afterwards() -> None:
    rng, mesh = Random(20), Mesh()
    genuine = Genuine(rng)
    with bounded_growth() as handled:
        for i in range(PAYLOADS):
            route = rng.choice(ROUTES)
            mesh.hear(route, payload(genuine, rng, route.message))
            mesh.time_passes()
            handled(i)
    print(f"dropped {mesh.malformed.total()}, taken {mesh.heard.total()}: {dict(mesh.heard)}")
    assert mesh.malformed.total() > PAYLOADS / 4
    assert mesh.heard.total() > PAYLOADS / 4
    # A stranger's decision that breaks no rule may hold, for as long as a decision may at most.
    for seq in range(14):
        mesh.time_passes(5.0)
        mesh.step(Role.WORKER, CycleTicked())
        mesh.step(Role.WORKER, TopologyReceived(replace(GENUINE, seq=seq)))
    assert mesh.topology_in_force() == "edf"


def test_an_absurd_decision_never_holds() -> None:
    mesh = Mesh()
    route = next(route for route in ROUTES if route.message is TopologyDecision)
    for wrong in (
        replace(GENUINE, epoch=2**63 - 1), replace(GENUINE, epoch=2**40), replace(GENUINE, valid_for_s=1e18),
        replace(GENUINE, valid_for_s=float("inf")), replace(GENUINE, valid_for_s=float("nan")),
        replace(GENUINE, valid_for_s=-1.0), replace(GENUINE, valid_for_s=61.0),
    ):  # fmt: skip
        mesh.hear(route, codec.encode(wrong))
    assert mesh.topology_in_force() == "fcfs"
    mesh.hear(route, codec.encode(GENUINE))
    assert mesh.topology_in_force() == "edf"


def frames(rng: Random, genuine: Genuine, frame: Any, messages: Any) -> bytes:
    """A frame of a stream, with one to three messages of which some are absurd, mutated as a whole or not."""
    made = frame()
    for _ in range(rng.choice((1, 1, 2, 3))):
        cls = rng.choice(get_args(messages))
        inner = getattr(made.ops.add(), execution._FIELDS[cls])
        try:
            inner.MergeFromString(payload(genuine, rng, cls))
        except Exception:
            inner.SetInParent()
    data: bytes = made.SerializeToString()
    return mutated(rng, data) if rng.random() < 0.3 else data


def test_nonsense_in_streams_stops_neither_gateway_nor_worker() -> None:
    rng, mesh = Random(21), Mesh()
    genuine = Genuine(rng)
    failures: list[str] = []

    def take(role: Role, event: Callable[[str, Any], Any]) -> Callable[[str, Any], None]:
        def step(peer: str, message: Any) -> None:
            try:
                for effect in mesh.step(role, event(peer, message)):
                    if isinstance(effect, ToGateway | ToWorker):
                        execution.add(
                            pb.WorkerFrame() if role is Role.WORKER else pb.GatewayFrame(), 0.0, effect.message
                        )
            except Exception as error:
                failures.append(f"{type(message).__name__}: {error!r}")
                raise

        return step

    sides = (
        (pb.GatewayFrame, GatewayMessage, "g1", take(Role.WORKER, FromGateway)),
        (pb.WorkerFrame, WorkerMessage, "w1", take(Role.GATEWAY, FromWorker)),
    )
    taken = 0
    with bounded_growth() as handled:
        for i in range(PAYLOADS):
            frame, messages, peer, step = sides[i % 2]
            try:
                read = frame.FromString(frames(rng, genuine, frame, messages))
            except Exception:
                pass
            else:
                taken += 1
                execution.deliver(read, mesh.now_s, peer, step)
            mesh.time_passes()
            handled(i)
    print(f"{taken} of {PAYLOADS} frames were frames")
    assert taken > PAYLOADS / 3
    assert failures == []
