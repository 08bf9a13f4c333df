"""What the console hears where everybody chose one name."""

from dataclasses import replace

from hmas.console.state import Asked, ConsoleState
from hmas.contracts.control import TopologyName
from hmas.contracts.outcome import Outcome
from tests.console.heard import (
    AUDIT,
    CONTROL,
    DISPATCHED,
    FINISHED,
    JOB,
    SAMPLE,
    SETTLED,
    decision,
    heartbeat,
    offered,
    queue_told,
    settled,
    telemetry,
    v_long,
    v_short,
)


def hear_named(state: ConsoleState, now_s: float, name: str) -> None:
    """Lets the console hear all that it shows of a pool, a worker, an engine, a tenant, a request, a job, a reason and
    an order, each of which is called `name`."""
    state.hear(now_s, replace(heartbeat(name), pool=name))
    state.hear(now_s, replace(CONTROL, worker=name, engines=tuple(replace(e, engine=name) for e in CONTROL.engines)))
    dispatched = replace(DISPATCHED, request_id=name, tenant=name, engine=name)
    finished = replace(FINISHED, request_id=name, tenant=name, engine=name)
    ran = telemetry(name, replace(SAMPLE, engine=name), dispatched=(dispatched,), finished=(finished,))
    state.hear(now_s, replace(ran, pool=name))
    lost = replace(SETTLED, request_id=name, tenant=name, outcome=Outcome.SLO_UNREACHABLE)
    waits = replace(offered(f"{name} waits", SETTLED.slo, age_s=99.0), tenant=name)
    state.hear(now_s, replace(settled(lost), pool=name, offered=(waits,)))
    state.hear(now_s, replace(v_short(arrival_rps=6.0, missed=0.5), pool=name))
    state.hear(now_s, replace(v_long(name), pool=name))
    state.hear(now_s, replace(decision(TopologyName.EDF, name, name), pool=name))
    record = replace(AUDIT, source=name, pool=name, kind=name, decision=name, reason=name, selector=name)
    state.hear(now_s, record)
    told = queue_told()
    rows = tuple(replace(row, tenant=name, why=name, request_id=name) for row in told.orders[0].rows[:1])
    told = replace(told, worker=name, topology=name, orders=(replace(told.orders[0], topology=name, rows=rows),))
    state.take_queue(now_s, name, "", told)
    job = replace(JOB, job=name, tenant=name, model=name, template=name, request_id=name, running=1)
    state.jobs = Asked(now_s, [job, replace(job, job=f"{name} over", running=0)])
    state.sample(now_s)
