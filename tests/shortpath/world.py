"""A small world of gateway agents, worker agents and engines, in one thread and in ticks of 50 ms.

The parties are thin shells without sockets: they pass what the agents say through queues, one for each direction of a
stream, and the engines are models that show how many runs they have. The world can delay, cut and repeat, freeze and
restart, and it watches from outside: it knows every run at every engine, and raises `Violation` as soon as an agent
does what the rules of the short path forbid (ADR 16).
"""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from re import sub
from typing import Any

from hmas.contracts.execution import (
    Adopt,
    Declined,
    Ended,
    FirstToken,
    Grant,
    Load,
    Prefilled,
    Proceed,
    Progress,
    Refusal,
    Started,
    Stop,
    Submit,
    Synced,
    Withdraw,
    WorkerMessage,
)
from hmas.contracts.gateway import (
    ClientLeft,
    FirstTokenRelayed,
    FromWorker,
    GatewayEffect,
    GatewayEvent,
    GatewayTicked,
    GoOn,
    PromptComputed,
    PublishGatewayTelemetry,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RunEnded,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
)
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import SGLANG, EngineInfo, HeartbeatReceived, WorkerHeartbeat
from hmas.contracts.worker import (
    CycleTicked,
    DrainStarted,
    EngineSampled,
    EngineWentDown,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    GatewayLost,
    HeartbeatDue,
    PublishHeartbeat,
    ToGateway,
    WorkerEvent,
)
from hmas.gateway.agent import GatewayAgent, GatewayConfig
from hmas.gateway.agent.config import RebalanceConfig
from hmas.worker.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.config import GatewayLinkConfig, SplitConfig
from tests.worker.builders import annotation, request

DT = 0.05  # seconds per tick
SILENCE = 40  # ticks without a byte after which a side closes its stream; also HMAS_FAIL_OPEN_AFTER_S
PING, SCRAPE, HEARTBEAT, CYCLE, PROGRESS, RECONNECT = 5, 10, 20, 2, 4, 6  # periods in ticks
STARTED_DUE, STARTED_LATE = 20, 10  # ticks after a grant: Stop is sent, no other grant is made
QUIET = 1200  # ticks in which some request ends, as long as one waits and nothing disturbs
SETTLED = 115  # ticks until books agree; a lost request is seen first at one engine, then at the other
FILLED = 70  # ticks until engines are full
LOG = 300  # lines that a violation shows

HELLO, NOTHING, END = "hello", "ping", "end"  # what a stream carries beside messages


class Violation(AssertionError):
    """An agent broke a rule. `rule` is a short name of it."""

    def __init__(self, rule: str, text: str, log: Iterator[str]) -> None:
        super().__init__(f"{rule}: {text}\n" + "\n".join(log))
        self.rule = rule


@dataclass(frozen=True, slots=True)
class Setting:
    """Who is there: sequences of each engine, the worker that owns it, and the number of gateways. An engine whose
    number is in `uncounted` shows no counts of its own. With `split`, every second engine computes prompts for the
    others of its worker. With `at_once`, both get each request at once, and none serves one alone."""

    gateways: int
    engines: tuple[tuple[int, int], ...]  # (worker's number, max_num_seqs)
    uncounted: frozenset[int] = frozenset()
    split: bool = False
    at_once: bool = False
    seed: int = 0

    @property
    def workers(self) -> int:
        return 1 + max(worker for worker, _ in self.engines)

    @property
    def kv(self) -> str:
        return SGLANG if self.at_once else "nixl-pull"

    def role(self, number: int) -> str:
        """What an engine is for: of those of its worker, the first computes prompts, the second answers, and so on."""
        mine = [n for n, (worker, _) in enumerate(self.engines) if worker == self.engines[number][0]]
        if not self.split or len(mine) == 1:
            return ""
        return "decode" if mine.index(number) % 2 else "prefill"


@dataclass(eq=False, slots=True)
class Asked:
    """A client's request: `tokens` long, its first after `first` ticks at an engine."""

    id: str
    gateway: "GatewaySide"
    tokens: int
    first: int
    stream: bool
    outcome: Outcome | None = None
    relayed: "Run | None" = None  # the run whose bytes the client has


@dataclass(eq=False, slots=True)
class Run:
    """One StartRun of a gateway, and what the engine does with it. `prefill` computes its prompt first, if it is not
    None; until that is `computed` the run is there. With `at_once` it is at both engines from the beginning, and leaves
    that one once it is computed."""

    asked: Asked
    number: int
    worker: str
    engine: "Engine"
    grant: Grant | None
    started: int
    active: bool = True  # at the gateway: neither ended nor stopped
    running: bool = False  # at the engine
    ticks: int = 0
    produced: int = 0
    excused: bool = False  # it may exceed N_run: the worker could not know of it
    prefill: "Engine | None" = None
    computed: bool = False
    told: bool = False  # the gateway knows that it is computed
    proceeds: bool = False
    at_once: bool = False

    @property
    def places(self) -> tuple["Engine", ...]:
        """The engines that have it."""
        if self.at_once and self.prefill is not None and not self.computed:
            return self.prefill, self.engine
        return (self.place,)

    @property
    def place(self) -> "Engine":
        return self.engine if self.prefill is None or self.computed else self.prefill


class Engine:
    """Runs at most `cap` sequences at once, others wait; a token each tick after the first."""

    def __init__(self, name: str, cap: int, counted: bool, role: str = "", kv: str = "nixl-pull") -> None:
        self.name, self.cap, self.counted = name, cap, counted
        self.runs: dict[str, Run] = {}  # by request
        self.alive = True
        self.hung_until = self.busy_until = 0
        self.failing = 0  # so many of the next runs fail before their first token
        self.refusing = 0
        self.dropping = 0  # so many of the next runs fail after their first token
        self.unreached: dict[str, int] = {}  # gateways that cannot connect, and until when
        self.info = EngineInfo(
            engine=name, up=True, dialect="emulated", hardware="A100", max_model_len=8192, kv_capacity_tokens=1_000_000,
            block_size=16, max_num_seqs=cap, endpoint=f"http://{name}", kv=kv if role else "", role=role,
            bootstrap_port=8998 if kv == SGLANG and role else 0,
        )  # fmt: skip


class Conn:
    """One stream between two processes; each direction is a queue of (tick when it arrives, item)."""

    def __init__(self, gateway: "GatewaySide", worker: "WorkerSide", tick: int) -> None:
        self.gateway, self.worker = gateway, worker
        self.to_worker: deque[tuple[int, Any]] = deque()
        self.to_gateway: deque[tuple[int, Any]] = deque()
        self.gateway_open = self.worker_open = True
        self.gateway_up = self.worker_up = False  # the other's Hello came
        self.synced = False
        self.heard_by_gateway = self.heard_by_worker = tick
        self.read_by_gateway = self.read_by_worker = tick


@dataclass(slots=True)
class Link:
    """The network between a gateway and a worker, whatever processes are there."""

    to_worker_stalled: int = 0
    to_gateway_stalled: int = 0
    repeating: int = 0
    conn: Conn | None = None


@dataclass(eq=False, slots=True)
class Granted:
    """A grant as the worker's process knows it, or an adopted run (`number` as adopted)."""

    gateway: str
    request_id: str
    attempt: int
    number: int
    engine: str
    tick: int
    answered: bool = False
    stops: int = 0
    prefill: str = ""  # the engine that computes its prompt, until the worker hears that it has
    computed: int = 0  # when it heard that

    @property
    def engines(self) -> set[str]:
        """Where it takes a slot."""
        return {self.engine, self.prefill} - {""}


class GatewaySide:
    """A gateway's process: its agent and a shell without sockets."""

    def __init__(self, world: "World", name: str, incarnation: int) -> None:
        self.world, self.name, self.id = world, name, f"{name}#{incarnation}"
        self.agent = world.agents.gateway(name)
        self.alive, self.frozen_until = True, 0
        self.inbox: deque[tuple[int, Callable[[], None]]] = deque()
        self.runs: dict[str, Run] = {}  # active ones by request
        self.asked: dict[str, Asked] = {}  # accepted, not settled
        self.known: set[str] = set()  # workers whose heartbeat came
        self.heard: dict[str, int] = {}  # worker: tick of its last byte
        self.drained: dict[str, str] = {}  # workers that said so, and which process of theirs
        self.shares: dict[str, int] = {}
        self.carried: set[tuple[str, int]] = set()  # (worker process, grant)
        self.retry = world.rng.randrange(RECONNECT)
        self.count = 0

    def post(self, what: Callable[[], None], delay: int = 1) -> None:
        self.inbox.append((self.world.tick + delay, what))

    def turn(self) -> None:
        world = self.world
        parts = [self.read_streams, self.read_inbox, self.timers]
        world.rng.shuffle(parts)
        for part in parts:
            part()

    def read_inbox(self) -> None:
        waiting, self.inbox = self.inbox, deque()
        for due, what in waiting:
            if due <= self.world.tick:
                what()
            else:
                self.inbox.append((due, what))

    def timers(self) -> None:
        world = self.world
        if world.tick % PROGRESS == 0:
            pairs = tuple((i, r.produced) for i, r in self.runs.items() if r.asked.relayed is r)
            if pairs:
                self.step(RunsProgressed(pairs))
        self.step(GatewayTicked())
        for name in self.known:
            link = world.links[self.name, name]
            conn = link.conn
            if conn is not None and conn.gateway is self and conn.gateway_open:
                if world.tick % PING == 0:
                    conn.to_worker.append((world.tick + 1, NOTHING))  # may overtake a slow snapshot, no more
            elif (world.tick + self.retry) % RECONNECT == 0:
                world.connect(self, name)

    # --- streams

    def conn(self, worker: str) -> Conn | None:
        conn = self.world.links[self.name, worker].conn
        return conn if conn is not None and conn.gateway is self and conn.gateway_open else None

    def read_streams(self) -> None:
        world = self.world
        for name in self.world.workers:
            conn = self.conn(name)
            if conn is None:
                continue
            if world.tick - conn.read_by_gateway > SILENCE:
                self.close(name, conn)
                continue
            conn.read_by_gateway = world.tick
            link = world.links[self.name, name]
            if world.tick >= link.to_gateway_stalled:
                while conn.gateway_open and conn.to_gateway and conn.to_gateway[0][0] <= world.tick:
                    item = conn.to_gateway.popleft()[1]
                    if item == END:
                        self.close(name, conn)
                        break
                    conn.heard_by_gateway = self.heard[name] = world.tick
                    if item == HELLO:
                        conn.gateway_up = True
                        if self.drained.get(name) != conn.worker.id:
                            self.drained.pop(name, None)
                        self.step(StreamChanged(name, True))
                    elif item != NOTHING:
                        self.hear(name, conn, item)
            if conn.gateway_open and world.tick - conn.heard_by_gateway > SILENCE:
                self.close(name, conn)

    def close(self, name: str, conn: Conn) -> None:
        world = self.world
        conn.gateway_open = False
        conn.to_gateway.clear()
        if world.rng.random() < 0.5:
            conn.to_worker.clear()
        conn.to_worker.append((world.tick + 1, END))
        if conn.gateway_up:
            self.step(StreamChanged(name, False, (world.tick - conn.heard_by_gateway) * DT))

    def hear(self, worker: str, conn: Conn, message: WorkerMessage) -> None:
        if isinstance(message, Load):
            if message.draining:
                self.drained[worker] = conn.worker.id
            if message.shares:
                self.shares = {k: v for k, v in self.shares.items() if self.world.owner[k] != worker}
                self.shares |= {share.engine: share.slots for share in message.shares}
        before = self.runs.get(message.request_id) if isinstance(message, Grant | Stop) else None
        effects = self.step(FromWorker(worker, message))
        if not isinstance(message, Grant | Stop):
            return
        answers = [
            e.message for e in effects
            if isinstance(e, ToWorker) and isinstance(e.message, Started | Declined | Ended)
            and e.message.grant == message.grant
        ]  # fmt: skip
        given = before.grant if before is not None and before.worker == worker else None
        if before is None or given is None or given.grant != message.grant:
            self.check(len(answers) == 1, "answer", f"{message} was answered by {answers}")
        elif isinstance(message, Grant):
            self.check(before.active and not answers, "idempotence", f"the second {message} was answered by {answers}")
        elif before.asked.relayed is None:
            self.check(not before.active, "stop", f"{message} is not obeyed")

    def heartbeat(self, beat: WorkerHeartbeat) -> None:
        self.known.add(beat.worker)
        if beat.draining:
            self.drained[beat.worker] = beat.incarnation
        elif self.drained.get(beat.worker) != beat.incarnation:
            self.drained.pop(beat.worker, None)
        self.heard.setdefault(beat.worker, self.world.tick)
        self.step(HeartbeatReceived(beat))

    # --- the agent

    def check(self, holds: bool, rule: str, text: str) -> None:
        if not holds:
            raise self.world.violation(rule, f"{self.id}: {text}")

    def step(self, event: GatewayEvent) -> list[GatewayEffect]:
        world = self.world
        effects = self.agent.step(world.now, event)
        world.note(self.id, event, effects)
        told: set[tuple[str, int]] = set()
        ended: list[Run] = []
        opened = isinstance(event, StreamChanged) and event.connected
        if opened and world.rng.random() < 0.5:  # Submits may come before Synced as well
            effects.sort(key=lambda e: isinstance(e, ToWorker) and isinstance(e.message, Synced))
        for effect in effects:
            match effect:
                case ToWorker(worker, message):
                    if isinstance(message, (Ended, Prefilled)):
                        told.add((message.request_id, message.grant))
                    conn = self.conn(worker)
                    if conn is not None and conn.gateway_up:
                        self.send(conn, worker, message, world.rng.choice((0, 0, 1, 3)) if opened else 0)
                case StartRun():
                    self.start(effect, event)
                case GoOn():
                    self.go_on(effect)
                case StopRun(request_id, number):
                    run = self.runs.pop(request_id, None)
                    self.check(run is not None and run.number == number, "runs", f"{effect}, but the run is {run}")
                    assert run is not None
                    run.active = False
                    ended.append(run)
                    world.commands.append((world.tick + 1, False, run))
                case Refuse(request_id=request_id, outcome=outcome):
                    self.settle(request_id, outcome)
                case Settle(request_id=request_id, outcome=outcome):
                    self.check(request_id not in self.runs, "settled", f"{request_id} is settled while it runs")
                    self.settle(request_id, outcome)
                case PublishGatewayTelemetry():
                    pass
        if opened:
            assert isinstance(event, StreamChanged)
            adopts = [e.message for e in effects if isinstance(e, ToWorker) and isinstance(e.message, Adopt)]
            adopted = {
                (a.request.id, a.engine, a.grant, a.first_token_s is not None, a.prefill, a.prefilled) for a in adopts
            }
            there = {
                (i, run.engine.name, run.grant.grant if run.grant else 0, run.asked.relayed is run, *_leg(run))
                for i, run in self.runs.items() if run.worker == event.worker
            }  # fmt: skip
            self.check(adopted == there, "snapshot", f"{adopted} are adopted, but {there} run")
        if isinstance(event, RunEnded):
            ended.append(world.runs[self.id, event.run])
        for run in ended:
            conn = self.conn(run.worker)
            if run.grant is not None and conn is not None and conn.gateway_up:
                self.check((run.asked.id, run.grant.grant) in told, "told", f"no Ended for {run.grant}")
        if isinstance(event, PromptComputed):
            run = self.runs[event.request_id]
            conn = self.conn(run.worker)
            if run.grant is not None and conn is not None and conn.gateway_up:
                self.check((run.asked.id, run.grant.grant) in told, "told", f"no Prefilled for {run.grant}")
        return effects

    def send(self, conn: Conn, worker: str, message: Any, lag: int) -> None:
        """A long snapshot takes `lag` ticks more for each message."""
        link, queue = self.world.links[self.name, worker], conn.to_worker
        due = max(self.world.tick + 1, queue[-1][0] if queue else 0) + lag
        queue.append((due, message))
        if self.world.tick < link.repeating:
            queue.append((due, message))

    def settle(self, request_id: str, outcome: Outcome) -> None:
        asked = self.asked.pop(request_id, None)
        self.check(asked is not None, "once", f"{request_id} is settled, but it does not wait")
        assert asked is not None
        asked.outcome = outcome
        self.world.outcomes[request_id] = outcome

    def start(self, effect: StartRun, event: GatewayEvent) -> None:
        world, request_id, grant = self.world, effect.request_id, effect.grant
        asked = self.asked.get(request_id)
        self.check(asked is not None, "runs", f"{effect}, but it is settled or unknown")
        assert asked is not None
        self.check(request_id not in self.runs, "one run", f"{effect}, but it runs")
        self.check(asked.relayed is None, "one run", f"{effect}, but its client has bytes")
        self.check(world.owner.get(effect.engine) == effect.worker, "runs", f"{effect}: not an engine of that worker")
        engine = world.engines[effect.engine]
        conn = self.conn(effect.worker)
        run = Run(asked, effect.run, effect.worker, engine, grant, world.tick)
        if grant is not None:
            run.prefill = world.engines[grant.prefill] if grant.prefill else None
            run.at_once = grant.bootstrap_port > 0
            given = isinstance(event, FromWorker) and event.message == grant and event.worker == effect.worker
            self.check(given, "runs", f"{effect} without its grant")
            assert conn is not None
            key = (conn.worker.id, grant.grant)
            self.check(key not in self.carried, "numbered", f"{grant} is carried out twice")
            self.carried.add(key)
            record = conn.worker.grants.get(request_id)
            known = record is not None and record.number == grant.grant
            late = record is None or world.tick - record.tick > STARTED_DUE
            run.excused = late or not known or not conn.worker_open or not conn.worker.alive
        else:
            silent = world.tick - self.heard.get(effect.worker, world.tick)
            up = conn is not None and conn.gateway_up
            self.check(not up and silent >= SILENCE - 1, "bypass", f"{effect} after {silent * DT:.2f} s of silence")
            self.check(effect.worker not in self.drained, "bypass", f"{effect}, but the worker drains")
            mine = sum(r.engine is engine for r in self.runs.values()) + 1
            most = self.shares.get(engine.name, max(1, engine.cap // 4))
            self.check(mine <= most, "shares", f"{effect} is number {mine} of {most} there")
            run.excused = True
            world.bypassed += 1
        self.runs[request_id] = run
        world.runs[self.id, run.number] = run
        world.commands.append((world.tick + 1, True, run))

    def go_on(self, effect: GoOn) -> None:
        run = self.runs.get(effect.request_id)
        going = run is not None and run.number == effect.run and run.computed and not run.proceeds and not run.at_once
        self.check(going, "legs", f"{effect}, but the run is {run}")
        assert run is not None
        self.check(self.world.owner.get(effect.engine) == run.worker, "legs", f"{effect}: not an engine of that worker")
        run.engine, run.proceeds, run.ticks = self.world.engines[effect.engine], True, 0
        self.world.commands.append((self.world.tick + 1, True, run))

    def on_engine(self, run: Run, what: str, ending: dict[str, Any]) -> None:
        """An engine's answer got further."""
        if not run.active:
            return
        if what == "computed":
            run.told = True
            self.step(PromptComputed(run.asked.id, run.number, 0))
            return
        if what == "first":
            self.check(run.asked.relayed is None, "one run", f"bytes of two runs for {run.asked.id}")
            run.asked.relayed = run
            self.step(FirstTokenRelayed(run.asked.id, run.number))
            return
        run.active = False
        del self.runs[run.asked.id]
        if run.asked.relayed is run:
            ending["retryable"] = False
        self.step(RunEnded(request_id=run.asked.id, run=run.number, **ending))

    def ask(self, asked: Asked) -> None:
        self.asked[asked.id] = asked
        made = request(asked.id, prompt_tokens=20, max_tokens=64, arrival_s=self.world.now)
        self.step(RequestReceived(replace(made, stream=asked.stream)))

    def annotate(self, request_id: str) -> None:
        if request_id in self.asked:
            self.step(RequestAnnotated(request_id, annotation(5.0)))

    def leave(self, request_id: str) -> None:
        if request_id in self.asked:
            self.step(ClientLeft(request_id))
            self.check(request_id not in self.asked, "left", f"the client of {request_id} left, but it is not settled")


@dataclass(slots=True)
class Seen:
    """A sample as the worker got it: who ran there, and how many entries of the books did not."""

    running: frozenset[str]
    unseen: int


class WorkerSide:
    """A worker's process: its agent and a shell without sockets."""

    def __init__(self, world: "World", name: str, incarnation: int) -> None:
        self.world, self.name, self.id = world, name, f"{name}#{incarnation}"
        self.agent = world.agents.worker(name, self.id)
        self.alive, self.frozen_until = True, 0
        self.draining = False
        self.engines = [e for e in world.engines.values() if world.owner[e.name] == name]
        self.believed: dict[str, int] = {}  # engines that are up: since when
        self.flapping: dict[str, int] = {}
        self.scraped: deque[tuple[int, Engine, frozenset[str]]] = deque()
        self.samples: dict[str, list[Seen]] = {}
        self.short = {
            e.name: (0, 0) for e in self.engines
        }  # the last two samples: by how many the old entries exceed them
        self.conns: dict[str, Conn] = {}  # by the gateway's process
        self.lost: dict[str, int] = {}
        self.submitted: dict[str, tuple[str, int]] = {}  # request: gateway, attempt
        self.named: dict[str, set[str]] = {}  # by a snapshot's Adopts
        self.grants: dict[str, Granted] = {}  # what the books have as running
        self.numbers: set[int] = set()
        self.blocked: dict[tuple[str, str], int] = {}
        self.adopted_unseen = dict.fromkeys(self.short, 0)  # since the last but one sample
        self.phase = world.rng.randrange(SCRAPE)

    def turn(self) -> None:
        parts = [self.read_streams, self.timers, self.watch]
        self.world.rng.shuffle(parts)
        for part in parts:
            part()

    def timers(self) -> None:
        tick = self.world.tick
        if tick % CYCLE == 0:
            self.step(CycleTicked())
            self.check_stops()
        if (tick + self.phase) % HEARTBEAT == 0:
            self.step(HeartbeatDue())
        if tick % PING == 0:
            for conn in self.conns.values():
                conn.to_gateway.append((tick + 1, NOTHING))

    def watch(self) -> None:
        """Probes and scrapes: a scrape's answer is there a tick later."""
        tick = self.world.tick
        while self.scraped and self.scraped[0][0] < tick:
            taken, engine, running = self.scraped.popleft()
            if engine.name in self.believed:
                self.sample(engine, taken, running)
        if (tick + self.phase) % SCRAPE:
            return
        for engine in self.engines:
            up = engine.alive and self.flapping.get(engine.name, 0) <= tick
            if up and engine.name not in self.believed:
                self.believed[engine.name] = tick
                self.samples[engine.name] = []
                self.step(EngineWentUp(engine.info))
            elif not up and engine.name in self.believed:
                del self.believed[engine.name]
                self.step(EngineWentDown(engine.name, "the probe failed"))
            if up:
                self.scraped.append((tick, engine, frozenset(engine.runs)))

    def sample(self, engine: Engine, taken: int, running: frozenset[str]) -> None:
        books = {i for i, g in self.grants.items() if engine.name in g.engines}
        seen = self.samples[engine.name]
        there = [self.grants[i] for i in books if not self.is_awaited(self.grants[i], engine.name)]
        old = sum(self.world.tick - max(g.tick, g.computed) >= STARTED_DUE for g in there)
        seen.append(Seen(running, len(books - running)))
        self.short[engine.name] = (self.short[engine.name][1], old - len(running))
        del seen[:-2]
        count = len(running) if engine.counted else len(books)
        now = min(count, engine.cap)
        self.step(
            EngineSampled(
                engine=engine.name, running=now, waiting=count - now, kv_usage=0.0002 * count, preemptions_total=0,
                step_s=0.02, prefill_tokens_per_s=5000.0, decode_tokens_per_s=500.0, counted=engine.counted,
                age_s=(self.world.tick - taken) * DT,
            )
        )  # fmt: skip
        self.adopted_unseen[engine.name] //= 2  # counted in this sample's foreign, not yet in the one before

    # --- streams

    def read_streams(self) -> None:
        world = self.world
        for link in world.links_of(self.name):
            conn = link.conn
            if conn is None or conn.worker is not self or not conn.worker_open:
                continue
            gateway = conn.gateway
            if world.tick - conn.read_by_worker > SILENCE:
                self.close(conn)
                continue
            conn.read_by_worker = world.tick
            if world.tick >= link.to_worker_stalled:
                while conn.worker_open and conn.to_worker and conn.to_worker[0][0] <= world.tick:
                    item = conn.to_worker.popleft()[1]
                    if item == END:
                        self.close(conn)
                        break
                    conn.heard_by_worker = world.tick
                    if item == HELLO:
                        self.connected(gateway.id, conn)
                    elif item != NOTHING:
                        self.hear(gateway.id, conn, item)
            if conn.worker_open and world.tick - conn.heard_by_worker > SILENCE:
                self.close(conn)

    def is_awaited(self, record: Granted, name: str) -> bool:
        """Whether a request has yet to come to the engine that answers it."""
        return bool(record.prefill) and record.engine == name and not self.world.setting.at_once

    def connected(self, gateway: str, conn: Conn) -> None:
        if gateway in self.conns:
            self.close(self.conns[gateway])
        self.conns[gateway] = conn
        conn.worker_up = True
        self.named[gateway] = set()
        conn.to_gateway.append((self.world.tick + 1, HELLO))
        self.step(GatewayConnected(gateway))

    def close(self, conn: Conn) -> None:
        world = self.world
        conn.worker_open = False
        conn.to_worker.clear()
        if world.rng.random() < 0.5:
            conn.to_gateway.clear()
        conn.to_gateway.append((world.tick + 1, END))
        if conn.worker_up:
            gateway = conn.gateway.id
            if self.conns.get(gateway) is conn:
                del self.conns[gateway]
            self.lost[gateway] = world.tick
            self.blocked = {pair: since for pair, since in self.blocked.items() if pair[0] != gateway}
            self.submitted = {i: s for i, s in self.submitted.items() if s[0] != gateway}
            self.step(GatewayLost(gateway))

    def hear(self, gateway: str, conn: Conn, message: Any) -> None:
        tick = self.world.tick
        match message:
            case Submit(request=made, attempt=attempt):
                self.submitted[made.id] = (gateway, attempt)
            case Withdraw(request_id, attempt):
                if self.submitted.get(request_id) == (gateway, attempt):
                    del self.submitted[request_id]
            case Adopt(request=made):
                self.named[gateway].add(made.id)
                self.submitted.pop(made.id, None)
                known = self.grants.get(made.id)
                if known is None or known.engine != message.engine:
                    last = self.samples.get(message.engine, [])
                    if not all(made.id in seen.running for seen in last):
                        self.adopted_unseen[message.engine] += 2
            case Synced():
                conn.synced = True
                self.lost.pop(gateway, None)
            case Prefilled(request_id, grant):
                record = self.grants.get(request_id)
                if record is not None and record.number == grant:
                    record.answered = True
                    self.computed(record)
            case Started(request_id, grant) | FirstToken(request_id, grant):
                record = self.grants.get(request_id)
                if record is not None and record.number == grant:
                    record.answered = True
                    if isinstance(message, FirstToken):
                        record.prefill, record.computed = "", 0
            case Ended(request_id=request_id, grant=grant):
                record = self.grants.get(request_id)
                if record is not None and record.number == grant:
                    record.answered = True
                    if message.unreached:
                        self.blocked[gateway, record.prefill if message.at_prefill else record.engine] = tick
                    if message.retryable:  # it waits here again, also if it was adopted
                        self.submitted[request_id] = gateway, record.attempt
                    else:
                        self.submitted.pop(request_id, None)
            case Declined(request_id, grant):
                record = self.grants.get(request_id)
                if record is not None and record.number == grant:
                    record.answered = True
                    if self.submitted.get(request_id) == (gateway, record.attempt):  # not a later one
                        del self.submitted[request_id]
            case Progress():
                pass
        self.step(FromGateway(gateway, message))

    # --- the agent

    def check(self, holds: bool, rule: str, text: str) -> None:
        if not holds:
            raise self.world.violation(rule, f"{self.id}: {text}")

    def computed(self, record: Granted) -> None:
        if record.prefill:
            record.prefill, record.computed = "", self.world.tick

    def books(self) -> dict[str, Any]:
        """Entries that the agent counts at its engines, by request."""
        running = (pair for engine in self.agent._state.fleet.values() for pair in engine.running.items())
        return {i: entry for i, entry in running if entry.engine != entry.prefill_on}

    def legs(self) -> dict[str, str]:
        """The engines at which it counts prompts that they compute for others, by request."""
        running = (pair for engine in self.agent._state.fleet.values() for pair in engine.running.items())
        return {i: entry.engine for i, entry in running if entry.engine == entry.prefill_on}

    def step(self, event: WorkerEvent) -> None:
        world = self.world
        effects = self.agent.step(world.now, event)
        world.note(self.id, event, effects)
        books = self.books()
        for request_id, record in list(self.grants.items()):
            entry = books.get(request_id)
            if entry is None or entry.engine != record.engine:
                self.freed(record, event)
        granted: set[str] = set()
        loads: dict[str, Load] = {}
        for effect in effects:
            if isinstance(effect, PublishHeartbeat):
                world.publish(effect.heartbeat)
            if not isinstance(effect, ToGateway):
                continue
            gateway, message = effect.gateway, effect.message
            match message:
                case Grant():
                    self.granted(gateway, message, event)
                    granted |= {message.engine, message.prefill} - {""}
                case Proceed(request_id, number):
                    going = self.grants.get(request_id)
                    known = going is not None and going.number == number
                    self.check(known, "legs", f"{message} of nothing granted")
                case Stop(request_id, number):
                    stopped = self.grants.get(request_id)
                    self.check(
                        stopped is not None and stopped.number == number, "stop", f"{message} of nothing granted"
                    )
                    assert stopped is not None
                    stopped.stops += 1
                    self.check(stopped.stops <= 2, "stop", f"{message} again")
                case Refusal(request_id=request_id):
                    self.submitted.pop(request_id, None)
                case Load():
                    loads[gateway] = message
            conn = self.conns.get(gateway)
            if conn is not None:
                conn.to_gateway.append((world.tick + 1, message))
                if world.tick < world.links[conn.gateway.name, self.name].repeating:
                    conn.to_gateway.append((world.tick + 1, message))
        for request_id, entry in books.items():
            if request_id not in self.grants:
                adopts = isinstance(event, FromGateway) and isinstance(event.message, Adopt)
                self.check(adopts, "books", f"{request_id} came into the books by {event}")
                assert isinstance(event, FromGateway)
                assert isinstance(event.message, Adopt)
                adopt = event.message
                since = round(adopt.granted_s / DT)
                leg = adopt.prefill if adopt.first_token_s is None else ""
                self.grants[request_id] = record = Granted(
                    event.gateway, request_id, adopt.attempt, adopt.grant, entry.engine, since, True, prefill=leg
                )
                if adopt.prefilled:
                    self.computed(record)
        if isinstance(event, FromGateway) and isinstance(event.message, Adopt) and event.message.engine in self.samples:
            held = self.grants.get(event.message.request.id)
            self.check(held is not None and held.engine == event.message.engine, "books", "a run is not adopted")
            assert held is not None
            begun = event.message.first_token_s is not None
            if held.number != event.message.grant:
                held.prefill, held.computed = "" if begun else event.message.prefill, 0
            if begun:
                held.prefill, held.computed = "", 0
            elif event.message.prefilled:
                self.computed(held)
            held.number, held.attempt, held.answered = event.message.grant, event.message.attempt, True
            held.tick, held.stops = round(event.message.granted_s / DT), 0
        legs = self.legs()
        if isinstance(event, EngineSampled):
            for record in self.grants.values():
                if record.prefill == event.engine and record.request_id not in legs:
                    self.check_orphan(record, record.prefill)
                    self.computed(record)
        for name in granted:
            self.check_bound(name)
        computing = {i: g.prefill for i, g in self.grants.items() if g.prefill}
        self.check(legs == computing, "legs", f"{legs} are counted, but {computing} are computed")
        if isinstance(event, HeartbeatDue):
            for engine in self.engines:
                given = sum(s.slots for load in loads.values() for s in load.shares if s.engine == engine.name)
                self.check(given <= engine.cap, "shares", f"{given} slots of {engine.cap} of {engine.name}: {loads}")

    def granted(self, gateway: str, grant: Grant, event: WorkerEvent) -> None:
        world, tick = self.world, self.world.tick
        record = self.grants.pop(grant.request_id, None)
        if record is not None:  # freed and granted again in one step
            self.freed(record, event)
        conn = self.conns.get(gateway)
        self.check(conn is not None and conn.synced, "synced", f"{grant} before Synced of {gateway}")
        self.check(grant.grant > 0 and grant.grant not in self.numbers, "numbered", f"{grant}: its number was used")
        self.numbers.add(grant.grant)
        waiting = self.submitted.get(grant.request_id)
        self.check(waiting == (gateway, grant.attempt), "grants", f"{grant}, but what waits is {waiting}")
        for name in {grant.engine, grant.prefill} - {""}:
            self.check(name in self.believed, "grants", f"{grant}: {name} is not up")
            if world.engines[name].counted:
                self.check(bool(self.samples[name]), "sampled", f"{grant} before a sample of {name}")
            else:
                self.check(tick - self.believed[name] >= 39, "sampled", f"{grant} before 2 s of {name}")
            self.check(tick - self.blocked.get((gateway, name), -99) >= 19, "blocked", f"{grant} too early for {name}")
        self.check(not self.draining, "drain", f"{grant} while the worker drains")
        for other in self.grants.values():
            late = other.gateway == gateway and not other.answered and tick - other.tick > STARTED_LATE
            self.check(not late, "lag", f"{grant}, but grant {other} is not answered")
        self.grants[grant.request_id] = Granted(
            gateway, grant.request_id, grant.attempt, grant.grant, grant.engine, tick, prefill=grant.prefill
        )

    def freed(self, record: Granted, event: WorkerEvent) -> None:
        """The books no longer have a grant: only what says that it cannot run may free its slot (rule 4)."""
        self.grants.pop(record.request_id, None)
        if isinstance(event, FromGateway) and event.gateway == record.gateway:
            conn, message = self.conns.get(event.gateway), event.message
            synced = conn is not None and conn.synced
            match message:
                case Ended() | Declined():
                    right = message.request_id == record.request_id and message.grant == record.number
                case Synced():
                    right = record.request_id not in self.named[event.gateway]
                case Submit():
                    same = message.request.id == record.request_id
                    right = same and (not synced or message.attempt > record.attempt)
                case Withdraw(request_id, attempt):
                    right = request_id == record.request_id and attempt == record.attempt
                case Adopt():
                    right = message.request.id == record.request_id
                case _:
                    right = False
            self.check(right, "freed", f"{record} was freed by {event}")
            return
        if isinstance(event, EngineSampled) and event.engine == record.engine:
            self.check(
                not self.is_awaited(record, event.engine),
                "orphans",
                f"{record} was freed before its prompt was computed",
            )
            self.check_orphan(record, record.engine)
            return
        self.check(False, "freed", f"{record} was freed by {event}")

    def check_orphan(self, record: Granted, name: str) -> None:
        """An engine no longer counts a request of a gateway that is lost: it showed fewer than it should have, or it
        shows nothing and has had its time."""
        orphan, engine = record.gateway in self.lost, self.world.engines[name]
        if orphan and engine.counted:
            short = self.short[name]
            self.check(min(short) > 0, "orphans", f"{record} was freed, but its engine may run it: {short}")
            for run in self.world.runs.values():  # it may also be between two engines, at a gateway that is frozen
                if run.active and run.asked.id == record.request_id:
                    run.excused = True
            return
        waited = self.world.tick - self.lost.get(record.gateway, self.world.tick) >= SILENCE - 1
        self.check(orphan and waited, "freed", f"{record} was freed by a sample of {name}")

    def check_bound(self, name: str) -> None:
        """After a grant: what the books count and what the engine has long shown beyond them fit N_run."""
        engine = self.world.engines[name]
        if not engine.counted:
            return
        mine = {i for i, g in self.grants.items() if name in g.engines}
        seen = self.samples[name]
        foreign = {
            i for i, run in engine.runs.items()
            if i not in mine and run.active and run.asked.gateway.alive and all(i in s.running for s in seen)
        }  # fmt: skip
        over = len(mine) + len(foreign) - engine.cap
        masked = max(s.unseen for s in seen) + self.adopted_unseen[name]
        self.check(
            over <= 0 or (bool(foreign) and over <= masked),
            "N_run",
            f"{len(mine)} in the books of {name} and {foreign}",
        )
        if over > 0:
            for request_id in foreign:
                engine.runs[request_id].excused = True

    def check_stops(self) -> None:
        tick = self.world.tick
        for record in self.grants.values():
            conn = self.conns.get(record.gateway)
            if conn is not None and conn.synced and not record.answered and tick - record.tick > STARTED_DUE + 1:
                self.check(record.stops > 0, "stop", f"{record} is not stopped")


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
        self.commands: list[tuple[int, bool, Run]] = []
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
        self._engines()
        sides = [s for s in (*self.workers.values(), *self.gateways.values()) if s is not None]
        self.rng.shuffle(sides)
        for side in sides:
            if side.alive and side.frozen_until <= self.tick:
                side.turn()
        for engine in self.engines.values():
            excused = sum(run.excused for run in engine.runs.values())
            if len(engine.runs) - excused > engine.cap and (engine.counted or not self.disturbed):
                raise self.violation("N_run", f"{len(engine.runs)} run at {engine.name}, which has {engine.cap} slots")

    def _engines(self) -> None:
        due = [c for c in self.commands if c[0] <= self.tick]
        if due:
            self.commands = [c for c in self.commands if c[0] > self.tick]
            for _, starts, run in due:
                if not starts:
                    self._leave_engine(run)
            for _, starts, run in due:
                if starts and run.active and run.asked.gateway.alive:
                    self._accept(run)
        for engine in self.engines.values():
            if engine.hung_until > self.tick or not engine.runs:
                continue
            for run in list(engine.runs.values())[: engine.cap]:
                self._advance(engine, run)

    def _leave_engine(self, run: Run) -> None:
        if run.running:
            run.running = False
            for engine in run.places:
                del engine.runs[run.asked.id]

    def _accept(self, run: Run) -> None:
        for other in self.engines.values():
            if run.asked.id in other.runs:
                raise self.violation("two engines", f"{run.asked.id} runs at {other.name} and at {run.place.name}")
        ends = [end for engine in run.places if (end := self._refused(run, engine)) is not None]
        if ends:
            self._answer(run, "end", ends[0])
            return
        for engine in run.places:
            engine.runs[run.asked.id] = run
        run.running = True

    def _refused(self, run: Run, engine: Engine) -> dict[str, Any] | None:
        """How a run ends that an engine does not take; None: it takes it."""
        end, asked = _failure(run, engine), run.asked
        if not engine.alive or engine.unreached.get(asked.gateway.name, 0) > self.tick:
            end["unreached"] = True
        elif engine.busy_until > self.tick:
            end |= {"status": 503, "busy": True}
        elif engine.refusing:
            engine.refusing -= 1
            end = {"outcome": Outcome.ENGINE_REFUSED, "message": "bad", "status": 400}
        elif engine.info.needs_partner and run.prefill is None:
            raise self.violation("partners", f"{asked.id} is to run at {engine.name} alone")
        else:
            return None
        return end

    def _answer(self, run: Run, what: str, end: dict[str, Any]) -> None:
        gateway = run.asked.gateway
        gateway.post(lambda: gateway.on_engine(run, what, end))

    def _advance(self, engine: Engine, run: Run) -> None:
        if engine is not run.place:
            return  # it waits there for its prompt
        run.ticks += 1
        if run.ticks < run.asked.first:
            return
        if run.ticks == run.asked.first:
            if engine.failing:
                engine.failing -= 1
                self._fail(run, 500)
                return
            if engine is not run.engine:
                if run.at_once:
                    del engine.runs[run.asked.id]
                    run.ticks = 0
                else:
                    self._leave_engine(run)
                run.computed = True
                self._answer(run, "computed", {})
                return
            if run.asked.stream:
                self._answer(run, "first", {})
        run.produced += 1
        if run.produced == 2 and engine.dropping:
            engine.dropping -= 1
            self._fail(run, 200)
        elif run.produced >= run.asked.tokens:
            self._leave_engine(run)
            self._answer(run, "end", {"outcome": Outcome.FINISHED, "status": 200, "output_tokens": run.produced})

    def _fail(self, run: Run, status: int, engine: Engine | None = None) -> None:
        failed = _failure(run, engine or run.place)
        self._leave_engine(run)
        self._answer(run, "end", failed | {"status": status})

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
            self._fail(run, 0, engine)
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


def _leg(run: Run) -> tuple[str, bool]:
    """Which engine computes a run's prompt, and whether its gateway knows that it has; neither counts any more once
    there is a token."""
    if run.prefill is None or run.asked.relayed is run:
        return "", False
    return run.prefill.name, run.told


def _failure(run: Run, engine: Engine) -> dict[str, Any]:
    return {"outcome": Outcome.ENGINE_ERROR, "message": "failed", "retryable": True,
            "at_prefill": engine is not run.engine}  # fmt: skip
