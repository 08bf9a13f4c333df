"""A gateway's process in the small world, and the rules that its agent must keep."""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hmas.contracts.execution import (
    Adopt,
    Declined,
    Ended,
    Grant,
    Load,
    Prefilled,
    Started,
    Stop,
    Synced,
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
from hmas.contracts.registry import HeartbeatReceived, WorkerHeartbeat
from tests.shortpath.parts import (
    DT,
    END,
    HELLO,
    NOTHING,
    PING,
    PROGRESS,
    RECONNECT,
    SILENCE,
    STARTED_DUE,
    Asked,
    Conn,
    Run,
    leg_of,
)
from tests.worker.builders import annotation, request

if TYPE_CHECKING:
    from tests.shortpath.world import World


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
        opened = event if isinstance(event, StreamChanged) and event.connected else None
        if opened and world.rng.random() < 0.5:  # Submits may come before Synced as well
            effects.sort(key=lambda e: isinstance(e, ToWorker) and isinstance(e.message, Synced))
        owed = self.owed(event)
        for effect in effects:
            match effect:
                case ToWorker(worker, message):
                    conn = self.conn(worker)
                    if conn is not None and conn.gateway_up:
                        self.send(conn, worker, message, world.rng.choice((0, 0, 1, 3)) if opened else 0)
                case StartRun():
                    self.start(effect, event)
                case GoOn():
                    self.go_on(effect)
                case StopRun(request_id, number):
                    owed.append((Ended, self.stopped(request_id, number)))
                case Refuse(request_id=request_id, outcome=outcome):
                    self.settle(request_id, outcome)
                case Settle(request_id=request_id, outcome=outcome):
                    self.check(request_id not in self.runs, "settled", f"{request_id} is settled while it runs")
                    self.settle(request_id, outcome)
                case PublishGatewayTelemetry():
                    pass
        messages = [(e.worker, e.message) for e in effects if isinstance(e, ToWorker)]
        if opened:
            self.check_snapshot(opened.worker, [message for _, message in messages if isinstance(message, Adopt)])
        told = {(type(m), m.request_id, m.grant) for _, m in messages if isinstance(m, Ended | Prefilled)}
        for kind, run in owed:
            conn = self.conn(run.worker)
            if run.grant is not None and conn is not None and conn.gateway_up:
                right = (kind, run.asked.id, run.grant.grant) in told
                self.check(right, "told", f"no {kind.__name__} for {run.grant}")
        return effects

    def owed(self, event: GatewayEvent) -> list[tuple[type, Run]]:
        """What the worker must be told of a run after `event`."""
        match event:
            case RunEnded():
                return [(Ended, self.world.runs[self.id, event.run])]
            case PromptComputed():
                return [(Prefilled, self.runs[event.request_id])]
        return []

    def stopped(self, request_id: str, number: int) -> Run:
        run = self.runs.pop(request_id, None)
        self.check(
            run is not None and run.number == number, "runs", f"{request_id}'s run {number} stops, there is {run}"
        )
        assert run is not None
        run.active = False
        self.world.commands.append((self.world.tick + 1, False, run))
        return run

    def check_snapshot(self, worker: str, adopts: list[Adopt]) -> None:
        """What a gateway says of its runs when a stream opens is how they are."""
        adopted = {
            (a.request.id, a.engine, a.grant, a.first_token_s is not None, a.prefill, a.prefilled) for a in adopts
        }
        there = {
            (i, run.engine.name, run.grant.grant if run.grant else 0, run.asked.relayed is run, *leg_of(run))
            for i, run in self.runs.items() if run.worker == worker
        }  # fmt: skip
        self.check(adopted == there, "snapshot", f"{adopted} are adopted, but {there} run")

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
