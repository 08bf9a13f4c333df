"""What the mesh decided lately."""

from dataclasses import replace
from pathlib import Path

import httpx

from hmas.contracts.control import ControlTuple, EngineControl, TopologyName
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.pool_plan import PlanDecision, PlannedType
from hmas.contracts.registry import WorkerHeartbeat
from hmas.gateway.decisions import DecisionLog
from hmas.gateway.tenants.keys import make_key
from tests.builders.control import control_tuple, engine_control, topology_decision
from tests.gateway.gateway_harness import gateway
from tests.gateway.gateway_script import heartbeat

SJF = topology_decision(TopologyName.SJF, valid_for_s=30.0, reason="start")


def engine(n_run: int) -> EngineControl:
    return engine_control("e", n_run=n_run, b_token=2 * n_run, b_max=99, gain_b=0.1)


def control(*n_run: int, worker: str = "w1") -> ControlTuple:
    return control_tuple(worker, engines=tuple(engine(n) for n in n_run), valid_for_s=30.0)


class Ticks:
    """Each reading of the clock is a second later."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        self.now_s += 1.0
        return self.now_s


def log_with(*workers: WorkerHeartbeat) -> DecisionLog:
    log = DecisionLog(Ticks(), kept=10)
    for worker in workers:
        log.on_heartbeat(worker)
    return log


def test_changes_are_kept_and_repetitions_are_not() -> None:
    log = log_with(heartbeat("w1"))
    for decision in (SJF, replace(SJF, seq=2), replace(SJF, bypass=True), SJF):
        log.on_topology(decision)
    for tuple_ in (control(4, 6), control(4, 6), control(4, 7)):
        log.on_tuple(tuple_)
    assert log.changes_of(frozenset({"m"})) == {
        "topology": [
            {"unix_s": 101.0, "pool": "m", "topology": "sjf"},
            {"unix_s": 102.0, "pool": "m", "topology": "bypass"},
            {"unix_s": 103.0, "pool": "m", "topology": "sjf"},
        ],
        "control": [
            {"unix_s": 104.0, "worker": "w1", "n_run": 10, "b_token": 20},
            {"unix_s": 105.0, "worker": "w1", "n_run": 11, "b_token": 22},
        ],
    }


def test_pools_are_kept_apart_and_the_log_is_bounded() -> None:
    log = log_with(heartbeat("w1"), replace(heartbeat("w2"), pool="other"))
    log.on_topology(replace(SJF, pool="other"))
    for n in range(15):
        log.on_tuple(control(n))
    log.on_tuple(control(3, worker="w2"))
    log.on_tuple(control(3, worker="unheard"))
    assert [e["topology"] for e in log.changes_of(frozenset({"other"}))["topology"]] == ["sjf"]
    assert [e["worker"] for e in log.changes_of(frozenset({"other"}))["control"]] == ["w2"]
    assert log.changes_of(frozenset({"m"}))["topology"] == []
    assert len(log.changes_of(frozenset({"m", "other"}))["control"]) <= 10


def test_the_plan_in_force_names_the_groups_of_engines() -> None:
    log, kind = log_with(), EngineKind("", "H100x4")
    assert log.group_of("m", kind) == ""
    plan = PlanDecision(
        plans=(), expected=(), bound=1.0, steps=(), ordered=(), epoch=1, seq=1, valid_for_s=15.0, reason="",
        selector="search", types=(PlannedType(name="tp4", model="m", hardware="h100", gpus=4),),
    )  # fmt: skip
    log.on_plan(plan)
    assert [log.group_of(pool, kind) for pool in ("m", "n")] == ["tp4", ""]
    log.on_plan(replace(plan, types=()))
    assert log.group_of("m", kind) == ""


async def test_the_api_tells_a_tenant_of_its_own_models(tmp_path: Path) -> None:
    file = tmp_path / "tenants.yaml"
    file.write_text("tenants:\n  acme:\n    models: [m]\n  initech:\n    models: [z]\n")
    mine, other = ({"authorization": f"Bearer {make_key(file, name).key}"} for name in ("acme", "initech"))
    log = log_with(heartbeat("w1"))
    log.on_topology(SJF)
    async with gateway(tenants_file=file, decisions=log) as g, httpx.AsyncClient(base_url=g.url, verify=False) as c:
        everything = log.changes_of(frozenset({"m"}))
        assert (await c.get("/hmas/timeline", headers=mine)).json() == everything
        assert (await c.get("/hmas/timeline?model=alias", headers=mine)).json() == everything
        for told in (await c.get("/hmas/timeline?model=z", headers=mine), await c.get("/hmas/timeline", headers=other)):
            assert told.json() == {"topology": [], "control": []}
        assert (await c.get("/hmas/timeline")).status_code == 401


def test_the_decision_in_force_names_its_proposer_and_the_reason() -> None:
    log = log_with()
    assert log.in_force("m") is None
    log.on_topology(SJF)
    log.on_topology(replace(SJF, topology=TopologyName.EDF, selector="llm", reason="+6.0 points predicted"))
    assert log.in_force("m") == {"topology": "edf", "proposer": "llm", "reason": "+6.0 points predicted"}
    few = DecisionLog(Ticks(), max_senders=2)
    for i in range(5):
        few.on_topology(replace(SJF, pool=f"p{i}"))
    assert [i for i in range(5) if few.in_force(f"p{i}")] == [3, 4]
