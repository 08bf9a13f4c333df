"""A worker's process in the small world, and the rules that its agent must keep."""

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
from hmas.contracts.worker import (
    CycleTicked,
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
from tests.shortpath.parts import (
    CYCLE,
    DT,
    END,
    HEARTBEAT,
    HELLO,
    NOTHING,
    PING,
    SCRAPE,
    SILENCE,
    STARTED_DUE,
    STARTED_LATE,
    Conn,
    Engine,
    Granted,
)

if TYPE_CHECKING:
    from tests.shortpath.world import World


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
            elif isinstance(effect, ToGateway):
                granted |= self.said(effect.gateway, effect.message, event)
                if isinstance(effect.message, Load):
                    loads[effect.gateway] = effect.message
        if isinstance(event, FromGateway) and isinstance(event.message, Adopt):
            self.adopted(event.gateway, event.message, books)
        strangers = books.keys() - self.grants
        self.check(not strangers, "books", f"{strangers} came into the books by {event}")
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

    def adopted(self, gateway: str, adopt: Adopt, books: dict[str, Any]) -> None:
        """A snapshot names a run: it is in the books now, if its engine is known, and as the snapshot says."""
        request_id, since = adopt.request.id, round(adopt.granted_s / DT)
        begun = adopt.first_token_s is not None
        if request_id in books and request_id not in self.grants:
            engine = books[request_id].engine
            self.grants[request_id] = record = Granted(
                gateway,
                request_id,
                adopt.attempt,
                adopt.grant,
                engine,
                since,
                True,
                prefill="" if begun else adopt.prefill,
            )
            if adopt.prefilled:
                self.computed(record)
        if adopt.engine not in self.samples:
            return
        held = self.grants.get(request_id)
        self.check(held is not None and held.engine == adopt.engine, "books", "a run is not adopted")
        assert held is not None
        if held.number != adopt.grant:
            held.prefill, held.computed = "" if begun else adopt.prefill, 0
        if begun:
            held.prefill, held.computed = "", 0
        elif adopt.prefilled:
            self.computed(held)
        held.number, held.attempt, held.answered = adopt.grant, adopt.attempt, True
        held.tick, held.stops = since, 0

    def said(self, gateway: str, message: WorkerMessage, event: WorkerEvent) -> set[str]:
        """The agent says something to a gateway. Returns the engines on which it grants a slot by that."""
        granted: set[str] = set()
        match message:
            case Grant():
                self.granted(gateway, message, event)
                granted = {message.engine, message.prefill} - {""}
            case Proceed(request_id, number):
                going = self.grants.get(request_id)
                self.check(going is not None and going.number == number, "legs", f"{message} of nothing granted")
            case Stop(request_id, number):
                stopped = self.grants.get(request_id)
                self.check(stopped is not None and stopped.number == number, "stop", f"{message} of nothing granted")
                assert stopped is not None
                stopped.stops += 1
                self.check(stopped.stops <= 2, "stop", f"{message} again")
            case Refusal(request_id=request_id):
                self.submitted.pop(request_id, None)
        conn = self.conns.get(gateway)
        if conn is not None:
            tick = self.world.tick
            twice = tick < self.world.links[conn.gateway.name, self.name].repeating
            conn.to_gateway.extend([(tick + 1, message)] * (1 + twice))
        return granted

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
