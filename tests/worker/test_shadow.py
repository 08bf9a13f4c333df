"""What a worker would have granted: recorded beside what really runs, by the agent that would schedule."""

import pytest

from hmas.contracts.control import TopologyName
from hmas.contracts.execution import Adopt, Ended, FirstToken
from hmas.contracts.outcome import Outcome
from hmas.contracts.worker import (
    CycleTicked,
    EngineWentUp,
    FromGateway,
    GatewayConnected,
    KvCacheCounted,
    PublishTelemetry,
)
from hmas.worker.agent import WorkerConfig
from hmas.worker.agent.agent import WorkerAgent
from hmas.worker.agent.shadow import ShadowWorker, WouldGrant
from tests.builders.control import topology_received
from tests.worker.builders import engine, request, sampled


class Observed:
    """A shadow worker with one engine of `sequences` sequences, up for so long that it may be granted on."""

    def __init__(self, sequences: int) -> None:
        config = WorkerConfig(worker="w1", incarnation="i", address="a:1", pool="m", prefill_window_s=10.0)
        self.shadow = ShadowWorker(config)
        for event in (GatewayConnected("g1"), EngineWentUp(engine("e1", max_num_seqs=sequences)), sampled("e1")):
            self.shadow.step(0.0, event)
        for at_s in (5.0, 5.1):  # what really runs there does not take its room
            self.shadow.step(at_s, sampled("e1", running=7))

    def begin(self, now_s: float, *names: str, prompt_tokens: int = 100) -> list[tuple[str, float]]:
        would: list[WouldGrant] = []
        for name in names:
            adopt = Adopt(request=request(name, prompt_tokens=prompt_tokens), attempt=1, annotation=None, engine="e1",
                          grant=0, output_tokens=0, granted_s=now_s, first_token_s=None)  # fmt: skip
            would += self.shadow.step(now_s, FromGateway("g1", adopt))
        return shown(would)

    def end(self, now_s: float, name: str) -> list[tuple[str, float]]:
        ended = Ended(request_id=name, grant=0, outcome=Outcome.FINISHED, output_tokens=5)
        return shown(self.shadow.step(now_s, FromGateway("g1", ended)))

    def cycle(self, now_s: float) -> list[tuple[str, float]]:
        return shown(self.shadow.step(now_s, CycleTicked()))


def shown(would: list[WouldGrant]) -> list[tuple[str, float]]:
    return [(each.grant.request_id, round(each.waited_s, 3)) for each in would]


def test_what_has_room_would_be_granted_at_once() -> None:
    observed = Observed(sequences=8)
    assert observed.begin(6.0, "r1", "r2") == [("r1", 0.0), ("r2", 0.0)]


def test_what_has_none_would_wait_for_the_end_of_another() -> None:
    observed = Observed(sequences=1)
    assert observed.begin(6.0, "r1", "r2") == [("r1", 0.0)]
    observed.shadow.step(6.5, FromGateway("g1", FirstToken("r1", 0)))
    assert observed.end(8.0, "r1") == [("r2", 2.0)]
    assert observed.begin(8.1, "r3") == []
    assert observed.end(9.0, "r2") == []  # it really took 3 s, and would have begun at 8
    assert observed.cycle(10.9) == []
    assert observed.cycle(11.0) == [("r3", 2.9)]


def test_each_request_is_recorded_once_and_forgotten() -> None:
    observed = Observed(sequences=1)
    observed.begin(6.0, "r1")
    assert observed.begin(6.1, "r1") == []
    observed.end(7.0, "r1")
    assert not observed.shadow._flights
    assert observed.begin(8.0, "r2") == [("r2", 0.0)]


def test_what_waits_does_not_hold_up_the_end_of_what_came_later_and_was_granted() -> None:
    observed = Observed(sequences=1)
    observed.shadow.step(6.0, topology_received(TopologyName.SJF))
    assert observed.begin(6.0, "first") == [("first", 0.0)]
    assert observed.begin(6.1, "long", prompt_tokens=4000) == []
    assert observed.begin(6.2, "short") == []
    assert observed.end(7.0, "first") == [("short", 0.8)]
    assert observed.end(7.5, "short") == []  # it really took 1.3 s, and would have begun at 7
    assert observed.cycle(8.2) == []
    assert observed.cycle(8.35) == [("long", 2.25)]


def test_what_real_requests_leave_in_a_cache_is_not_told_of_those_that_would_run() -> None:
    observed = Observed(sequences=1)
    prefix = observed.shadow._agent._state.fleet["e1"].prefix
    observed.shadow.step(5.2, KvCacheCounted(engine="e1", blocks=900, stored=30, removed=20))
    assert prefix._cached is None
    prefix._tokens = 64.0
    observed.shadow.step(5.3, KvCacheCounted(engine="e1", blocks=0, cleared=True))  # which no request did
    assert (prefix._cached, prefix._tokens) == (None, 0.0)


@pytest.mark.parametrize("observes", [True, False])
def test_a_worker_that_observes_reports_what_gateways_place_and_what_perception_said_of_it(observes: bool) -> None:
    agent = WorkerAgent(WorkerConfig(worker="w1", incarnation="i", address="a:1", pool="m", observes=observes))
    adopt = Adopt(request=request("r1", prompt_tokens=100), attempt=1, annotation=None, engine="e1", grant=0,
                  output_tokens=0, granted_s=0.0, first_token_s=None)  # fmt: skip
    for event in (GatewayConnected("g1"), EngineWentUp(engine("e1")), sampled("e1"), FromGateway("g1", adopt)):
        agent.step(0.0, event)
    effects = [effect for at_s in (0.4, 0.8) for effect in agent.step(at_s, CycleTicked())]
    told = [row for effect in effects if isinstance(effect, PublishTelemetry) for row in effect.telemetry.queued]
    assert [(row.request_id, row.waits) for row in told] == ([("r1", False)] if observes else [])
