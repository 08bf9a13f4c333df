"""Which engine a gateway chooses by itself while workers are silent, and which it leaves alone for a while."""

from dataclasses import replace
from typing import Any

from hmas.contracts.execution import EngineShare
from hmas.contracts.gateway import (
    StreamChanged,
)
from hmas.gateway.agent.config import (
    FailOpenConfig,
    GatewayConfig,
)
from hmas.gateway.agent.handlers.runs import give_up
from hmas.gateway.agent.requests.stalls import Stall
from hmas.gateway.agent.state import GatewayState
from tests.builders.registry import engine_info
from tests.gateway.gateway_script import Mesh, heartbeat, ledger_entry, load

CONFIG = GatewayConfig(gateway="g", incarnation="i")


def bypassed(*slots: int, **changes: Any) -> GatewayState:
    """A gateway whose workers w1, w2, ... fell silent at 0, each with one engine and so many shares."""
    state = GatewayState(replace(CONFIG, fail_open=FailOpenConfig(**changes)))
    for number, share in enumerate(slots, 1):
        engine = engine_info(endpoint=f"http://e{number}", max_num_seqs=16)
        state.router.hear(0.0, heartbeat(f"w{number}", engines=(engine,)))
        state.router.connect(f"w{number}")
        if share >= 0:
            state.router.load(0.0, f"w{number}", load(EngineShare("e1", share)))
        state.router.disconnect(f"w{number}", 0.0)
    return state


def run_on(state: GatewayState, name: str, worker: str) -> None:
    entry = ledger_entry(name)
    state.ledger.open(entry)
    state.ledger.bypass(entry, 2.0, 1, (worker, "e1"))


def test_the_engine_with_the_smallest_part_of_its_share_taken_is_chosen() -> None:
    state = bypassed(2, 4, after_s=2.0)
    chooses = state.bypass.choose
    assert chooses(1.75, "m") is None
    assert chooses(2.0, "m") == ("w1", "e1")
    assert state.bypass.covers(2.0, "m")
    assert not state.bypass.covers(1.75, "m")
    taken = []
    for number in range(6):
        ref = chooses(2.0, "m")
        assert ref is not None
        taken.append(ref[0])
        run_on(state, f"r{number}", ref[0])
    assert taken == ["w1", "w2", "w2", "w1", "w2", "w2"]
    assert chooses(2.0, "m") is None
    assert bypassed(0, after_s=2.0).bypass.choose(9.0, "m") is None
    quarter = bypassed(-1, after_s=2.0)
    for number in range(4):
        assert quarter.bypass.choose(9.0, "m") is not None
        run_on(quarter, f"r{number}", "w1")
    assert quarter.bypass.choose(9.0, "m") is None
    assert bypassed(2, enabled=False).bypass.choose(9.0, "m") is None


def test_an_engine_on_trial_and_one_that_failed_wait_for_their_instants() -> None:
    state = bypassed(8, after_s=2.0, trial_s=4.0, pause_s=1.0, max_pause_s=3.0)
    bypass, ref = state.bypass, ("w1", "e1")
    bypass.placed(10.0, ref)
    assert bypass.choose(13.75, "m") is None
    assert bypass.choose(14.0, "m") == ref
    bypass.left(ref)
    assert bypass.choose(10.0, "m") == ref, "what left before its end shows nothing"
    bypass.left(("w9", "e1"))
    bypass.placed(20.0, ref)
    bypass.answered(ref)
    assert bypass.choose(20.0, "m") == ref
    pauses = []
    now_s = 30.0
    for _ in range(4):
        bypass.failed(now_s, ref)
        bypass.failed(now_s + 0.25, ref)  # several runs failed at once
        until_s = next(now_s + pause for pause in (1.0, 2.0, 3.0, 4.0) if bypass.choose(now_s + pause, "m"))
        assert bypass.choose(until_s - 0.125, "m") is None
        assert bypass.least_outstanding(until_s - 0.125, "m") is None
        assert bypass.least_outstanding(until_s, "m") == ref
        pauses.append(until_s - now_s)
        now_s = until_s
    assert pauses == [1.0, 2.0, 3.0, 3.0]
    bypass.placed(now_s, ref)
    assert bypass.choose(now_s, "m") is None, "it is on trial again"
    bypass.answered(ref)
    bypass.failed(50.0, ref)
    assert bypass.choose(51.0, "m") == ref, "an answer ends the row"
    bypass.failed(60.0, ref)
    bypass.forget("w1")
    assert bypass.choose(60.0, "m") == ref


def test_a_request_is_placed_until_it_has_failed_often_enough() -> None:
    bypass, entry = bypassed(1, tries=3).bypass, ledger_entry()
    allowed = []
    for entry.bypass_failures in range(5):
        allowed.append(bypass.allows(entry))
    assert allowed == [True, True, True, False, False]


def test_a_stall_is_held_against_an_engine_only_where_nobody_else_watches_it() -> None:
    for silent in (False, True):
        mesh = Mesh("w1")
        mesh.receive("r1")
        mesh.grant("r1")
        if silent:
            mesh.play(StreamChanged("w1", False))
        state = mesh.agent._state
        entry = state.ledger.get("r1")
        assert entry is not None
        give_up(state, Stall(entry, 40.0, 30.0))
        assert (("w1", "e1") in state.bypass._trials) is silent
