"""What a gateway knows of each worker: its reports, and what was sent to it since."""

from dataclasses import replace
from random import Random

import pytest

from hmas.gateway.agent.config import (
    GatewayConfig,
)
from hmas.gateway.agent.pools.workers import Appraisal, KnownWorker, Sending
from hmas.gateway.agent.routing.routing import Router
from tests.gateway.gateway_script import heartbeat, load

CONFIG = GatewayConfig(gateway="g", incarnation="i")


def test_what_was_sent_to_a_worker_is_added_until_its_report_counts_it() -> None:
    rng = Random(3)
    worker = KnownWorker(heartbeat=heartbeat(), heard_s=0.0)
    waits: dict[str, Sending] = {}
    for number in range(300):
        name, action = f"r{number}", rng.randrange(5)
        known = rng.choice(sorted(waits)) if waits else ""
        if action < 2 or not known:
            waits[name] = Sending(float(number), rng.randrange(1, 900), rng.randrange(1, 9) / 8.0)
            worker.remember(name, replace(waits[name]))
        elif action == 2:
            waits[known].waiting = False
            worker.dequeue(known, waits[known].tokens)
        elif action == 3:
            waits[known].cost_s = 2.0
            worker.recost(known, 2.0)
            worker.recost("another", 5.0)
        else:
            del waits[known]
            worker.forget(known)
            worker.forget(known)
        if number % 50 == 49:
            worker.report(float(number), load(queued=2, queued_tokens=700, backlog_s=1.0), 10.0)
            waits = {each: sent for each, sent in waits.items() if sent.at_s > number - 10.0}
        queued = [sent for sent in waits.values() if sent.waiting]
        assert (worker.sent_queued, worker.sent_tokens) == (len(queued), sum(sent.tokens for sent in queued))
        assert worker.sent_s == pytest.approx(sum(sent.cost_s for sent in waits.values()))
        assert worker.predicted_backlog_s == worker.backlog_s + worker.sent_s
    worker.withdraw("reported", 300, 0.25)
    assert (worker.queued, worker.queued_tokens, worker.backlog_s) == (1, 400, 0.75)
    worker.dequeue("reported too", 500)
    worker.dequeue("and one more", 500)
    assert (worker.queued, worker.queued_tokens) == (0, 0)


def test_a_worker_has_room_up_to_its_bounds() -> None:
    worker = KnownWorker(heartbeat=heartbeat(max_queued=3, max_queued_tokens=1000), heard_s=0.0)
    worker.bound()
    worker.queued, worker.sent_queued, worker.queued_tokens, worker.sent_tokens = 1, 1, 400, 100
    assert worker.has_room(500)
    assert not worker.has_room(501)
    worker.sent_queued = 2
    assert not worker.has_room(1)
    worker.heartbeat = heartbeat(max_queued=0, max_queued_tokens=0)
    worker.bound()
    assert worker.has_room(10**9)


def test_what_a_worker_is_compared_by() -> None:
    worker = KnownWorker(heartbeat=heartbeat(max_queued=9, max_queued_tokens=1000), heard_s=4.0)
    worker.bound()
    worker.engines_up, worker.slots = 2, 16
    worker.report(7.0, load(queued=2, queued_tokens=300, running=6, backlog_s=4.0), 0.0)
    worker.remember("r1", Sending(8.0, 100, 3.0))
    worker.expect("r1", 0.75)
    worker.expect("r2", 0.25)
    expected = Appraisal(
        room=600, alive_s=7.0, wait_s=0.5 + 4.0 * 2 / 8, drain_s=4.0 + 3.0 / 6, requests=9, load=9 / 16, waiting=1.0
    )
    assert worker.appraise() == expected == worker.appraisal
    worker.computed("r1")
    assert worker.appraisal is None
    assert worker.pending_s == 0.25
    worker.expect("r2", 0.5)
    assert worker.pending_s == 0.5
    worker.computed("r2")
    worker.computed("r2")
    assert worker.pending_s == 0.0


def test_grants_of_a_stream_rise() -> None:
    router = Router(CONFIG)
    router.connect("w1")
    assert [router.is_new_grant("w1", number) for number in (0, 1, 1, 5, 4, 6)] == [
        False, True, False, True, False, True,
    ]  # fmt: skip
    router.disconnect("w1", 0.0)
    router.connect("w1")
    assert router.is_new_grant("w1", 1), "another stream counts anew"


def test_what_is_sent_to_a_worker_that_runs_nothing_takes_as_long_as_it_costs() -> None:
    worker = KnownWorker(heartbeat=heartbeat(), heard_s=0.0)
    worker.report(0.0, load(running=0, backlog_s=1.0), 0.0)
    worker.remember("r1", Sending(1.0, 100, 3.0))
    assert worker.appraise().drain_s == 4.0
    worker.withdraw("another", 100, 5.0)
    assert worker.backlog_s == 0.0, "no backlog is below zero"
