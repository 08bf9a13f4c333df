"""How long a refused client is told to wait."""

from hmas.gateway.agent.admission.waiting import WaitEstimator
from hmas.gateway.agent.config import (
    WaitConfig,
)
from hmas.gateway.agent.pools.workers import KnownWorker
from tests.gateway.gateway_script import heartbeat, view


def test_the_wait_is_what_is_queued_over_the_rate_or_the_least_backlog() -> None:
    waits = WaitEstimator(WaitConfig(min_retry_s=1.0, max_retry_s=8.0))
    workers = [KnownWorker(heartbeat=heartbeat(name), heard_s=0.0) for name in ("w1", "w2")]
    assert waits.wait_s(0.0, "m", []) == 0.0
    workers[0].backlog_s, workers[0].sent_s, workers[1].backlog_s = 2.0, 3.0, 9.0
    assert waits.wait_s(0.0, "m", workers) == 5.0
    workers[0].queued, workers[0].sent_queued, workers[1].queued = 6, 2, 12
    waits.hear(10.0, view(settled_rps=2.0, epoch=2, seq=3))
    assert waits.wait_s(11.0, "m", workers) == 10.0
    assert waits.wait_s(11.25, "m", workers) == 5.0, "the view is no longer valid"
    assert waits.wait_s(11.0, "other", workers) == 5.0
    waits.hear(10.0, view(settled_rps=5.0, epoch=2, seq=2))
    assert waits.wait_s(10.0, "m", workers) == 10.0, "it was sent before"
    waits.hear(25.0, view(settled_rps=5.0, epoch=1, seq=9))
    assert waits.wait_s(10.0, "m", workers) == 10.0, "the newer epoch counts for 15 s"
    waits.hear(25.25, view(settled_rps=5.0, epoch=1, seq=9))
    assert waits.wait_s(25.25, "m", workers) == 4.0
    waits.hear(25.25, view(settled_rps=0.0, epoch=1, seq=10))
    assert waits.wait_s(25.25, "m", workers) == 5.0
    assert [waits.retry_after_s(0.0, "x", w) for w in ([], workers, workers[1:])] == [1.0, 2.5, 4.5]
    workers[1].backlog_s = 30.0
    assert waits.retry_after_s(0.0, "x", workers[1:]) == 8.0
