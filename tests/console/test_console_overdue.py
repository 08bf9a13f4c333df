"""Requests that wait past their deadline: a share of settled requests says nothing of them."""

from dataclasses import replace

from hmas.console.overdue import FORGOTTEN_S, MAX_EARLY, MAX_OPEN, UnansweredRequests
from hmas.console.pages.now import view_now
from hmas.console.state import ConsoleState
from hmas.contracts.request import Slo
from hmas.contracts.telemetry import RequestOffered
from tests.console.heard import SETTLED, first_token, offered, settled, telemetry, v_long, v_short


def overdue(requests: UnansweredRequests, now_s: float) -> int:
    return requests.overdue(now_s)["m"]["acme"]


def taken(*requests: RequestOffered, at_s: float = 100.0) -> UnansweredRequests:
    taken = UnansweredRequests()
    for request in requests:
        taken.offered(at_s, "m", request)
    return taken


def test_a_request_is_overdue_from_its_deadline_to_its_first_token_or_its_end() -> None:
    requests = taken(offered("a", Slo(2.0, 0.1)), offered("b", Slo(2.0, 0.1)), offered("c", Slo(9.0, 0.1), age_s=8.0))
    assert overdue(requests, 100.9) == 0
    assert overdue(requests, 101.5) == 1
    assert overdue(requests, 102.5) == 3
    requests.first_token("a")
    requests.settled("b")
    assert overdue(requests, 103.0) == 1


def test_an_answer_may_be_heard_of_before_its_request() -> None:
    requests = UnansweredRequests()
    requests.first_token("a")
    requests.offered(100.0, "m", offered("a", Slo(2.0, 0.1)))
    requests.offered(100.0, "m", offered("b", Slo(2.0, 0.1)))
    assert overdue(requests, 110.0) == 1


def test_a_first_token_is_no_answer_where_only_the_last_is_judged() -> None:
    requests = taken(
        offered("stated", Slo(2.0, 0.1, ttlt_s=5.0, whole=True)),
        offered("bounded", replace(Slo(2.0, 0.1), whole=True), max_tokens=100),
        offered("endless", replace(Slo(2.0, 0.1), whole=True)),
    )
    for name in ("stated", "bounded", "endless"):
        requests.first_token(name)
    assert overdue(requests, 104.0) == 0
    assert overdue(requests, 106.0) == 1
    assert overdue(requests, 113.0) == 2  # 2 s, and 0.1 s for each of 100 tokens


def test_what_is_kept_is_bounded() -> None:
    requests = taken(*(offered(f"r{n}", Slo(2.0, 0.1)) for n in range(MAX_OPEN + 5)))
    assert len(requests) == MAX_OPEN
    assert overdue(requests, 102.0 + FORGOTTEN_S) == MAX_OPEN
    assert overdue(requests, 103.0 + FORGOTTEN_S) == 0
    assert len(requests) == 0
    for n in range(MAX_EARLY + 1):
        requests.first_token(f"r{n}")
    requests.offered(100.0, "m", offered("r0", Slo(2.0, 0.1)))
    assert len(requests) == 1  # its first token is forgotten


def test_the_page_now_counts_them_by_pool_and_tenant_and_over_time() -> None:
    state = ConsoleState()
    state.hear(100.0, v_short(arrival_rps=2.0, missed=0.0))
    state.hear(100.0, v_long("acme", "zeta"))
    state.hear(100.0, replace(settled(), offered=tuple(offered(name, Slo(2.0, 0.1)) for name in "abc")))
    state.sample(101.0)
    state.sample(103.0)
    view = view_now(state, 103.0, "")
    assert view["pools"]["m"]["overdue"] == 3
    assert {name: row["overdue"] for name, row in view["tenants"].items()} == {"acme": 3, "zeta": 0}
    assert [row[-1] for row in view["load"].values()] == [0, 3]
    state.hear(103.0, replace(telemetry(), first_tokens=(first_token("a"),)))
    state.hear(103.0, settled(replace(SETTLED, request_id="b")))
    assert view_now(state, 103.0, "")["pools"]["m"]["overdue"] == 1
