"""Which workers a request may go to, and which of them is the least loaded."""

from dataclasses import replace
from math import inf
from typing import Any

import pytest

from hmas.contracts.cadences import WORKER_LOST_AFTER_S
from hmas.contracts.control import Layout
from hmas.contracts.engine_kind import EngineKind
from hmas.contracts.request import Cost, KindCost, Request, Slo
from hmas.gateway.agent.pools.workers import KnownWorker
from hmas.gateway.agent.routing.choice import least_loaded, of_class
from hmas.gateway.agent.routing.route_chooser import in_pace, needed_pace_s
from tests.gateway.gateway_script import annotation, heartbeat, request


def worker(name: str = "w1", *, heard_s: float = 0.0, **changes: Any) -> KnownWorker:
    found = KnownWorker(heartbeat=heartbeat(name), heard_s=heard_s)
    found.engines_up = 1
    found.bound()
    for field, value in changes.items():
        setattr(found, field, value)
    return found


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"engines_up": 0}, {"backlog_s": 99.0}),
        ({"heard_s": 99.75 - WORKER_LOST_AFTER_S}, {"heard_s": 100.0 - WORKER_LOST_AFTER_S, "backlog_s": 99.0}),
        ({"backlog_s": 2.0}, {"backlog_s": 1.5}),
        ({"backlog_s": 1.0, "sent_s": 1.0}, {"backlog_s": 1.5}),
        ({"requests": 2}, {"requests": 1, "last_sent": 9}),
        ({"last_sent": 4}, {"last_sent": 3}),
    ],
)
def test_the_less_loaded_worker_is_chosen_wherever_it_stands(first: dict[str, Any], second: dict[str, Any]) -> None:
    plain = {"heard_s": 100.0}
    busier, idler = worker("w1", **(plain | first)), worker("w2", **(plain | second))
    assert least_loaded(100.0, [busier, idler]) is least_loaded(100.0, [idler, busier]) is idler
    assert least_loaded(100.0, [busier]) is busier
    assert least_loaded(100.0, []) is None
    equal = worker("w3"), worker("w4")
    assert least_loaded(0.0, equal) is equal[0]


def test_a_request_goes_to_the_workers_of_its_class() -> None:
    layout = Layout((0.05, 0.2), ())
    several = [worker(f"w{i}", classes=frozenset({i})) for i in range(3)]
    for each in several:
        each.heartbeat = replace(each.heartbeat, layout=layout)

    def classes(made: Request, slo: Slo) -> list[str]:
        return [each.name for each in of_class(several, replace(made, slo=slo), None)]

    assert classes(request(), Slo(2.0, 0.01)) == ["w0"]
    assert classes(request(), Slo(2.0, 0.1)) == ["w1"]
    assert classes(request(), Slo(2.0, 0.9)) == ["w2"]
    assert classes(request(max_tokens=0), Slo(2.0, 0.01)) == ["w2"], "what generates nothing has no pace"
    several[2].heartbeat = heartbeat("w2")
    assert classes(request(), Slo(2.0, 0.01)) == ["w0"], "the first worker's layout counts"
    several.reverse()
    assert classes(request(), Slo(2.0, 0.01)) == ["w2", "w1", "w0"]
    assert of_class(several[1:2], request(slo=Slo(2.0, 0.01)), None) == several[1:2], "of one there is no choice"


def test_one_judged_by_its_last_token_needs_the_pace_that_its_ttlt_leaves_its_predicted_length() -> None:
    slo = Slo(2.0, 0.3, 11.0, whole=True)

    def needed_s(tokens: float, **fields: Any) -> float:
        costs = (KindCost(EngineKind(), Cost(1.0, 0.02)),)
        return needed_pace_s(request(slo=slo, **fields), replace(annotation(tokens, slo=slo), costs=costs))

    assert needed_s(100.0) == pytest.approx(0.1)
    assert needed_s(50.0) == pytest.approx(0.2)
    assert needed_s(100.0, max_tokens=50) == pytest.approx(0.2)
    assert needed_s(100.0, max_tokens=0) == inf, "what generates nothing has no pace"
    assert needed_pace_s(request(slo=slo), None) == 0.3, "the TPOT SLO, as long as nothing is predicted"


def test_slow_workers_are_left_out_while_a_quick_one_is_no_longer_queue_away() -> None:
    quick, slow = worker("quick", backlog_s=3.0), worker("slow", backlog_s=1.0)
    both = [slow, quick]
    made, slo = request(), Slo(2.0, 0.1)

    def chosen(now_s: float = 0.0, slo: Slo = slo, made: Request = made) -> list[str]:
        return [each.name for each in in_pace(now_s, both, replace(made, slo=slo), None)]

    slow.see_step(0.0, 0.1)
    assert chosen() == ["slow", "quick"], "a step of just the SLO keeps it"
    slow.see_step(1.0, 0.0)
    slow.see_step(1.0, 0.125)
    assert chosen(1.0) == ["quick"]
    quick.backlog_s = 3.125
    assert chosen(1.0) == ["slow", "quick"], "its backlog is more than the TTFT SLO longer"
    quick.backlog_s = 3.0
    assert chosen(1.0, made=request(max_tokens=0)) == ["slow", "quick"]
    quick.engines_up = 0
    assert chosen(1.0) == ["slow", "quick"]
    quick.engines_up = 1
    assert chosen(1000.0) == ["slow", "quick"], "it was not heard of lately"
