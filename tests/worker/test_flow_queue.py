"""Flows of one tenant share its turns."""

from hmas.worker.agent.order.shares import FlowQueue
from tests.worker.builders import entry, request


def test_flows_of_a_tenant_share_equally_and_idle_ones_are_forgotten() -> None:
    queue = FlowQueue()
    for number in range(1, 101):  # each of another flow
        queue.push(entry(number, request(f"r{number}", flow=f"f{number}", prompt_tokens=100), tokens=50.0))
        assert len(queue._finish) <= 2 * len(queue) + 64
        if number > 2:
            queue.pop()
    kept = {each.request.flow: each.rank[0] for each in queue if each.rank is not None}
    queue._forget_idle()
    assert queue._finish == kept
    flow = next(iter(kept))
    later = entry(200, request("later", flow=flow, prompt_tokens=100), tokens=50.0)
    queue.push(later)
    assert later.rank is not None
    assert later.rank[0] == max(kept[flow], queue._virtual) + later.service
    again = entry(201, request("again", flow=flow), tokens=50.0)
    again.tried = ("e1#1",)
    queue.push(again)
    assert again.rank is not None
    assert again.rank[0] == queue._virtual, "it has had its turn"


def test_flow_tags_of_tried_requests_are_kept_at_zero() -> None:
    queue = FlowQueue()
    again = entry(1, request("again", flow="f"), tokens=50.0)
    again.tried = ("e1#1",)
    queue.push(again)
    queue._forget_idle()
    assert queue._finish == {"f": 0.0}
