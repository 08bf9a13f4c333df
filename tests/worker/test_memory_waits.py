"""A grant tells for how long memory alone kept its request, or the first one of its lane, from an engine."""

from dataclasses import replace

from hmas.contracts.worker import CycleTicked, WorkerEffect
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.engines.memory_waits import MemoryWaits
from tests.worker.builders import Scripted, engine, granted, request

CONFIG = WorkerConfig(
    worker="w", incarnation="w-1", address="h:1", pool="m", prefill_window_s=10.0, static_n_run=8
)  # fmt: skip


def waited(effects: list[WorkerEffect]) -> dict[str, float]:
    return {grant.request_id: grant.timeline.memory_s for grant in granted(effects)}


def test_it_tells_of_the_first_one_and_of_those_behind_it() -> None:
    agent = Scripted(CONFIG, engine(kv_capacity_tokens=1000))
    assert waited(agent.submit(1.0, request("big", prompt_tokens=600, max_tokens=10))) == {"big": 0.0}
    agent.submit(2.0, request("next", prompt_tokens=600, max_tokens=10))
    agent.submit(5.0, request("small", prompt_tokens=10, max_tokens=10))
    agent.step(6.0, CycleTicked())
    assert waited(agent.finish(9.0, "big", 5)) == {"next": 7.0, "small": 4.0}
    assert waited(agent.submit(20.0, request("later", prompt_tokens=10, max_tokens=10))) == {"later": 0.0}


def test_who_waits_for_a_slot_does_not_wait_for_memory() -> None:
    agent = Scripted(replace(CONFIG, static_n_run=2), engine(kv_capacity_tokens=1000))
    agent.submit(1.0, request("big", prompt_tokens=600, max_tokens=10))
    agent.submit(2.0, request("next", prompt_tokens=600, max_tokens=10))
    assert waited(agent.finish(9.0, "big", 5)) == {"next": 7.0}
    small = [request(f"small-{i}", prompt_tokens=10, max_tokens=10) for i in range(2)]
    assert waited(agent.submit(10.0, *small)) == {"small-0": 0.0}
    assert waited(agent.finish(15.0, "next", 5)) == {"small-1": 0.0}, "it lacked a slot alone"


def test_a_lane_that_waits_again_goes_on_adding_and_lanes_do_not_share() -> None:
    waits = MemoryWaits()
    before = waits.totals(0.0)
    for now_s, refused in ((1.0, True), (2.0, True), (4.0, False), (6.0, True), (7.0, False)):
        waits.ask()
        if refused:
            waits.refuse()
        waits.note(now_s, 0, waits=True)
        waits.note(now_s, 1, waits=False)
    assert waits.totals(9.0) == {0: 4.0}
    assert [waits.waited_s(9.0, lane, before, 0.0) for lane in (0, 1)] == [4.0, 0.0]
    assert waits.waited_s(9.0, 0, before, 8.0) == 1.0, "no more than it waited"
