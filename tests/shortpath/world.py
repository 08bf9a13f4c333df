"""A small world of gateway agents, worker agents and engines, in one thread and in ticks of 50 ms.

The parties are thin shells without sockets: they pass what the agents say through queues, one for each direction of a
stream, and the engines are models that show how many runs they have. The world can delay, cut and repeat, freeze and
restart, and it watches from outside: it knows every run at every engine, and raises `Violation` as soon as an agent
does what the rules of the short path forbid (ADR 16).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from re import sub
from typing import Any

from hmas.contracts.execution import (
    Load,
)
from hmas.contracts.gateway import (
    FromWorker,
    GatewayTicked,
    PublishGatewayTelemetry,
    RunsProgressed,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.worker import (
    CycleTicked,
    DrainStarted,
    EngineSampled,
    HeartbeatDue,
    PublishHeartbeat,
)
from hmas.gateway.agent import GatewayAgent, GatewayConfig
from hmas.gateway.agent.config import RebalanceConfig
from hmas.worker.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.config import GatewayLinkConfig, SplitConfig
from tests.shortpath.gateway_side import GatewaySide
from tests.shortpath.parts import (
    DT,
    END,
    FILLED,
    HELLO,
    LOG,
    QUIET,
    SETTLED,
    Asked,
    Conn,
    Engine,
    Link,
    Run,
    Setting,
    Violation,
)
from tests.shortpath.running import Running
from tests.shortpath.worker_side import WorkerSide


@dataclass(slots=True)
class Agents:
    """How agents are made; a planted fault replaces one."""

    gateway: Callable[[str], GatewayAgent] = field(default=lambda name: GatewayAgent(gateway_config(name)))
    worker: Callable[[str, str], WorkerAgent] = field(
        default=lambda name, incarnation: WorkerAgent(worker_config(name, incarnation))
    )


def gateway_config(name: str) -> GatewayConfig:
    return GatewayConfig(gateway=name, rebalance=RebalanceConfig(every_s=0.3, after=2, min_s=0.2, min_share=0.2))


def worker_config(name: str, incarnation: str, split: str = "always") -> WorkerConfig:
    """Nothing is split where no engine hands KV over."""
    return WorkerConfig(
        worker=name, incarnation=incarnation, address=f"{name}:1", pool="m", telemetry_period_s=5.0,
        gateways=GatewayLinkConfig(max_block_s=2.0), split=SplitConfig(rule=split),
    )  # fmt: skip


class World:
    """Everything there is. The methods below `turn` are what may happen to it."""

    def __init__(self, setting: Setting, agents: Agents | None = None) -> None:
        self.setting, self.agents = setting, agents or Agents()
        self.rng = Random(setting.seed)
        self.tick = 0
        self.log: deque[tuple[int, str, Any, Any]] = deque(maxlen=LOG)
        self.owner = {f"e{n}": f"w{worker + 1}" for n, (worker, _) in enumerate(setting.engines)}
        self.engines = {
            f"e{n}": Engine(f"e{n}", cap, n not in setting.uncounted, setting.role(n), setting.kv)
            for n, (_, cap) in enumerate(setting.engines)
        }
        self.commands: list[tuple[int, bool, Run]] = []  # (tick when it comes, whether it begins, run)
        self.running = Running(self)
        self.runs: dict[tuple[str, int], Run] = {}
        self.outcomes: dict[str, Outcome] = {}
        self.bypassed = 0
        self.disturbed = False
        self.starts: dict[str, int] = {}
        worker_names = [f"w{n + 1}" for n in range(setting.workers)]
        gateway_names = [f"g{n + 1}" for n in range(setting.gateways)]
        self.links = {(g, w): Link() for g in gateway_names for w in worker_names}
        self.workers: dict[str, WorkerSide | None] = dict.fromkeys(worker_names)
        self.gateways: dict[str, GatewaySide | None] = dict.fromkeys(gateway_names)
        self.returning: dict[str, int] = {}  # processes and engines that start again, and when
        for name in [*worker_names, *gateway_names]:
            self.boot(name)

    @property
    def now(self) -> float:
        return self.tick * DT

    # --- plumbing

    def note(self, who: str, event: Any, effects: Any) -> None:
        load = isinstance(event, HeartbeatDue) or (isinstance(event, FromWorker) and isinstance(event.message, Load))
        if not load and (
            effects or not isinstance(event, GatewayTicked | CycleTicked | RunsProgressed | EngineSampled)
        ):
            self.log.append((self.tick, who, event, effects))

    def violation(self, rule: str, text: str) -> Violation:
        lines = (
            f"{tick * DT:8.2f} {who} {_brief(event)}"
            + "".join(f"\n{'':12}-> {_brief(effect)}" for effect in effects if not _dull(effect))
            for tick, who, event, effects in self.log
            if not isinstance(event, HeartbeatReceived)
        )
        return Violation(rule, f"at {self.now:.2f} s: {text}", lines)

    def boot(self, name: str) -> None:
        self.starts[name] = self.starts.get(name, 0) + 1
        if name in self.workers:
            self.workers[name] = WorkerSide(self, name, self.starts[name])
        else:
            self.gateways[name] = GatewaySide(self, name, self.starts[name])

    def links_of(self, worker: str) -> list[Link]:
        return [link for (_, w), link in self.links.items() if w == worker]

    def connect(self, gateway: GatewaySide, worker: str) -> None:
        link, side = self.links[gateway.name, worker], self.workers[worker]
        stalled = max(link.to_worker_stalled, link.to_gateway_stalled) > self.tick
        if side is None or stalled or (link.conn is not None and link.conn.worker is side and self._draining_out(link)):
            return
        link.conn = conn = Conn(gateway, side, self.tick)
        conn.to_worker.append((self.tick + 1, HELLO))

    def _draining_out(self, link: Link) -> bool:
        """The old stream's end has not been read by the worker; it will be before a new one's Hello."""
        conn = link.conn
        return conn is not None and conn.worker_open and self.tick >= link.to_worker_stalled and not conn.gateway_open

    def publish(self, beat: WorkerHeartbeat) -> None:
        for gateway in self.gateways.values():
            if gateway is not None:
                gateway.post(lambda g=gateway: g.heartbeat(beat))  # type: ignore[misc]

    def turn(self) -> None:
        """A tick passes."""
        self.tick += 1
        for name, due in list(self.returning.items()):
            if due <= self.tick:
                del self.returning[name]
                if name in self.engines:
                    self.engines[name].alive = True
                else:
                    self.boot(name)
        self.running.turn()
        sides = [s for s in (*self.workers.values(), *self.gateways.values()) if s is not None]
        self.rng.shuffle(sides)
        for side in sides:
            if side.alive and side.frozen_until <= self.tick:
                side.turn()
        for engine in self.engines.values():
            excused = sum(run.excused for run in engine.runs.values())
            if len(engine.runs) - excused > engine.cap and (engine.counted or not self.disturbed):
                raise self.violation("N_run", f"{len(engine.runs)} run at {engine.name}, which has {engine.cap} slots")

    # --- what may happen

    def ask(self, gateway: str, tokens: int, first: int, stream: bool) -> None:
        side = self.gateways[gateway]
        if side is not None:
            side.count += 1
            asked = Asked(f"{side.id}-{side.count}", side, tokens, first, stream)
            side.post(lambda: side.ask(asked))

    def some_request(self, pick: int) -> tuple[GatewaySide, str] | None:
        waiting = [(side, i) for side in self.gateways.values() if side is not None for i in side.asked]
        return waiting[pick % len(waiting)] if waiting else None

    def leave(self, pick: int) -> None:
        found = self.some_request(pick)
        if found is not None:
            found[0].post(lambda: found[0].leave(found[1]))

    def annotate(self, pick: int) -> None:
        found = self.some_request(pick)
        if found is not None:
            found[0].post(lambda: found[0].annotate(found[1]))

    def cut(self, link: Link) -> None:
        conn = link.conn
        if conn is not None:
            for queue in (conn.to_worker, conn.to_gateway):
                queue.clear()
                queue.append((self.tick + 1, END))

    def stall(self, link: Link, ticks: int, to_worker: bool, to_gateway: bool) -> None:
        if to_worker:
            link.to_worker_stalled = self.tick + ticks
        if to_gateway:
            link.to_gateway_stalled = self.tick + ticks

    def repeat(self, link: Link, ticks: int) -> None:
        link.repeating = self.tick + ticks

    def freeze(self, name: str, ticks: int) -> None:
        side = self.workers.get(name) or self.gateways.get(name)
        if side is not None:
            side.frozen_until = self.tick + ticks

    def restart(self, name: str, ticks: int) -> None:
        side = self.workers.get(name) or self.gateways.get(name)
        if side is None:
            return
        side.alive = False
        self.returning[name] = self.tick + ticks
        if isinstance(side, WorkerSide):
            self.workers[name] = None
            for link in self.links_of(name):
                if link.conn is not None and link.conn.worker is side:
                    link.conn.worker_open = False
                    link.conn.to_gateway.append((self.tick + 1, END))
            return
        self.gateways[name] = None
        for (gateway, _), link in self.links.items():
            if gateway == name and link.conn is not None:
                link.conn.gateway_open = False
                link.conn.to_worker.append((self.tick + 1, END))
        for run in side.runs.values():
            run.active = False
            self.commands.append((self.tick + 1, False, run))

    def crash(self, engine: Engine, ticks: int) -> None:
        """The engine's process ends, and another starts after `ticks`."""
        engine.alive = False
        for run in list(engine.runs.values()):
            self.running.fail(run, 0, engine)
        self.returning[engine.name] = self.tick + ticks

    def flap(self, engine: Engine, ticks: int) -> None:
        """The worker's probes of the engine fail, although it runs."""
        side = self.workers[self.owner[engine.name]]
        if side is not None:
            side.flapping[engine.name] = self.tick + ticks

    def drain(self, name: str) -> None:
        side = self.workers[name]
        if side is not None and side.frozen_until <= self.tick and not side.draining:
            side.draining = True
            side.step(DrainStarted())

    # --- the end

    def heal(self) -> None:
        """Everything works again; a worker that drained is replaced."""
        for link in self.links.values():
            link.to_worker_stalled = link.to_gateway_stalled = link.repeating = 0
        for engine in self.engines.values():
            engine.hung_until = engine.busy_until = engine.failing = engine.refusing = engine.dropping = 0
            engine.unreached.clear()
        for name in self.returning:
            self.returning[name] = self.tick
        for side in (*self.workers.values(), *self.gateways.values()):
            if side is not None:
                side.frozen_until = 0
                if isinstance(side, WorkerSide):
                    side.flapping.clear()
                    if side.draining:
                        self.restart(side.name, 1)

    @property
    def busy(self) -> bool:
        asked = any(side is None or side.asked or side.inbox for side in self.gateways.values())
        return asked or any(engine.runs for engine in self.engines.values())

    def finish(self) -> None:
        """Heals the world, waits until it is quiet, and compares the books; then fills every engine once."""
        self.heal()
        self.wait_quiet()
        for _ in range(SETTLED):
            self.turn()
        self.check_books()
        self.fill()
        self.wait_quiet()
        for _ in range(SETTLED):
            self.turn()
        self.check_books()
        self.check_outcomes()

    def wait_quiet(self) -> None:
        """Waits until all that was asked has ended. Some request ends at least every `QUIET` ticks until then."""
        settled, still = len(self.outcomes), 0
        while still < QUIET:
            self.turn()
            if not self.busy:
                return
            still = still + 1 if len(self.outcomes) == settled else 0
            settled = len(self.outcomes)
        waiting = {s.id: list(s.asked) for s in self.gateways.values() if s is not None}
        raise self.violation("waits", f"for {QUIET * DT:.0f} s no request has ended, and there still wait {waiting}")

    def check_books(self) -> None:
        for gateway in self.gateways.values():
            assert gateway is not None
            if gateway.agent.live:
                raise self.violation("quiet", f"{gateway.id} has {gateway.agent.live} requests")
        for worker in self.workers.values():
            assert worker is not None
            state = worker.agent._state
            for engine in state.fleet.values():
                books = engine.books
                if engine.running or books.blocks or books.kept_blocks or books.decoding or engine.prefill.entries():
                    raise self.violation("quiet", f"{worker.id} counts {engine.running}, {engine.books.blocks} blocks")
            if len(state.queue):
                raise self.violation("quiet", f"{worker.id} has {len(state.queue)} requests")

    def fill(self) -> None:
        """What is free can be used: with enough requests every engine runs as many as it may."""
        most = 2 * sum(engine.cap for engine in self.engines.values())
        for n in range(most):
            self.ask(f"g{n % self.setting.gateways + 1}", tokens=80, first=1, stream=True)
        full: set[str] = set()
        for _ in range(FILLED):
            self.turn()
            full |= {e.name for e in self.engines.values() if len(e.runs) >= e.cap}
        answering = {e.name for e in self.engines.values() if e.info.role != "prefill"}
        if not answering <= full:
            raise self.violation("leak", f"of {sorted(answering)} only {sorted(full)} were ever full")

    def check_outcomes(self) -> None:
        for request_id, outcome in self.outcomes.items():
            if outcome in (Outcome.TIMED_OUT, Outcome.INTERNAL):
                raise self.violation("outcome", f"{request_id} ended as {outcome}")


def _dull(effect: Any) -> bool:
    return isinstance(effect, PublishGatewayTelemetry | PublishHeartbeat) or type(effect).__name__ == "PublishTelemetry"


def _brief(said: Any) -> str:
    """An event or effect without the text of a whole request."""
    return sub(r"Request\(id='([^']*)'.*?relegate=\w+\)", r"\1", sub(r"timeline=Timeline\(.*?\)", "", str(said)))
