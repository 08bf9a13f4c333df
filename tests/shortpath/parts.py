"""What the small world is made of: who is there, requests, runs, engines, streams, and what the world knows of each."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hmas.contracts.execution import Grant
from hmas.contracts.outcome import Outcome
from hmas.contracts.registry import SGLANG, EngineInfo

if TYPE_CHECKING:
    from tests.shortpath.gateway_side import GatewaySide
    from tests.shortpath.worker_side import WorkerSide

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


def leg_of(run: Run) -> tuple[str, bool]:
    """Which engine computes a run's prompt, and whether its gateway knows that it has; neither counts any more once
    there is a token."""
    if run.prefill is None or run.asked.relayed is run:
        return "", False
    return run.prefill.name, run.told
