"""The latest changes of topologies and of control tuples that this gateway received, for `GET /hmas/timeline`."""

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

from hmas.contracts.control import ControlTuple, TopologyDecision
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import PlanDecision, PlannedType
from hmas.contracts.registry import WorkerHeartbeat
from hmas.laws.plan_steps import told_type

ToldDecision = dict[str, Any]


class DecisionLog:
    """Records when the topology of a pool or the set-points of a worker changed; repeated values are left out.

    `clock` returns Unix seconds; a change is dated when its message arrives here. `kept`: most changes kept of each
    kind. `max_senders`: most pools and workers whose last value is remembered.
    """

    def __init__(self, clock: Callable[[], float], *, kept: int = 4096, max_senders: int = 1024) -> None:
        self._clock, self._max_senders = clock, max_senders
        self._topologies: deque[ToldDecision] = deque(maxlen=kept)
        self._tuples: deque[ToldDecision] = deque(maxlen=kept)
        self._last: dict[tuple[str, str], Hashable] = {}
        self._pools: dict[str, str] = {}  # worker -> pool
        self._in_force: dict[str, TopologyDecision] = {}  # by pool
        self._types: tuple[PlannedType, ...] = ()  # of engines, as the plan in force tells them

    def on_heartbeat(self, heartbeat: WorkerHeartbeat) -> None:
        if heartbeat.worker in self._pools or len(self._pools) < self._max_senders:
            self._pools[heartbeat.worker] = heartbeat.pool

    def on_plan(self, decision: PlanDecision) -> None:
        self._types = decision.types

    def group_of(self, pool: str, kind: EngineKind) -> str:
        """Returns the instance type of an engine of a pool, by the plan in force; empty if it tells of none."""
        return told_type(self._types, kind, pool)

    def on_topology(self, decision: TopologyDecision) -> None:
        self._in_force.pop(decision.pool, None)
        self._in_force[decision.pool] = decision
        if len(self._in_force) > self._max_senders:
            del self._in_force[next(iter(self._in_force))]
        name = "bypass" if decision.bypass else decision.topology.value
        if self._changed("topology", decision.pool, name):
            self._topologies.append({"unix_s": self._clock(), "pool": decision.pool, "topology": name})

    def on_tuple(self, control: ControlTuple) -> None:
        """Records a worker's N_run and B_token, each summed over its engines, if they changed."""
        n_run, b_token = sum(e.n_run for e in control.engines), sum(e.b_token for e in control.engines)
        if self._changed("tuple", control.worker, (n_run, b_token)):
            self._tuples.append({"unix_s": self._clock(), "worker": control.worker, "n_run": n_run, "b_token": b_token})

    def in_force(self, pool: str) -> ToldDecision | None:
        """Returns the last decision about the pool: who proposed it, and why, with the gain that was predicted of it if
        it was rehearsed. None: there was none."""
        decision = self._in_force.get(pool)
        if decision is None:
            return None
        topology = "bypass" if decision.bypass else decision.topology.value
        return {"topology": topology, "proposer": decision.selector, "reason": decision.reason}

    def _changed(self, kind: str, sender: str, value: Hashable) -> bool:
        before = self._last.pop((kind, sender), None)
        if len(self._last) >= self._max_senders:
            del self._last[next(iter(self._last))]  # the one whose last message is the oldest
        self._last[(kind, sender)] = value
        return before != value

    def changes_of(self, pools: frozenset[str]) -> dict[str, list[ToldDecision]]:
        """Returns the changes of these pools and of their workers, the oldest first."""
        return {
            "topology": [e for e in self._topologies if e["pool"] in pools],
            "control": [e for e in self._tuples if self._pools.get(e["worker"]) in pools],
        }
