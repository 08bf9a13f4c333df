"""Each rule of the short path, broken once on purpose: the world must find it."""

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from hmas.contracts.execution import Adopt, Declined, Ended, EngineShare, Started
from hmas.contracts.gateway import GatewayEffect, GatewayEvent, StopRun, ToWorker
from hmas.contracts.worker import WorkerEffect, WorkerEvent
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import FailOpenConfig
from hmas.gateway.agent.requests.ledger import Ledger, LedgerEntry
from hmas.gateway.agent.requests.legs import Legs
from hmas.gateway.agent.routing import routing
from hmas.gateway.agent.routing.routing import Router
from hmas.worker.agent import WorkerAgent, adoption, ends, engine_events, intake
from hmas.worker.agent import pump as pump_module
from hmas.worker.agent import state as worker_state
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.gateways import Gateway
from hmas.worker.agent.pump import pump
from hmas.worker.agent.split import rules
from hmas.worker.agent.state import WorkerState
from tests.shortpath.parts import Violation
from tests.shortpath.test_protocol_properties import Script, play, scripts
from tests.shortpath.world import Agents, gateway_config, worker_config

pytestmark = pytest.mark.long  # tests of the world in which the protocol is tested
MOST = 300  # scripts until a fault must have been found
Patch = pytest.MonkeyPatch


def search(first: int, agents: Agents | None = None, split: bool | None = None, at_once: bool = False) -> str:
    """Plays scripts until one breaks a rule, and returns the rule; empty: none did. `split` and `at_once` as in
    `scripts`."""

    @seed(first)
    @settings(
        max_examples=MOST, phases=[Phase.generate], database=None, report_multiple_bugs=False, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(scripts(split=split, at_once=at_once))
    def found(script: Script) -> None:
        play(script, agents)

    try:
        found()
    except Violation as broken:
        return broken.rule
    return ""


# --- gateways that say something else ------------------------------------------------------------------------------

Answer = Callable[[list[GatewayEffect]], list[GatewayEffect]]


class FaultyGateway(GatewayAgent):
    def __init__(self, name: str, answer: Answer) -> None:
        super().__init__(gateway_config(name))
        self._answer = answer

    def step(self, now_s: float, event: GatewayEvent) -> list[GatewayEffect]:
        return self._answer(super().step(now_s, event))


def without(*kinds: type) -> Answer:
    """Messages of these kinds are never sent."""
    return lambda effects: [e for e in effects if not (isinstance(e, ToWorker) and isinstance(e.message, kinds))]


def _keeps_runs(effects: list[GatewayEffect]) -> list[GatewayEffect]:
    return [e for e in effects if not isinstance(e, StopRun)]


def _hides_tokens(effects: list[GatewayEffect]) -> list[GatewayEffect]:
    return [
        replace(e, message=replace(e.message, first_token_s=None))
        if isinstance(e, ToWorker) and isinstance(e.message, Adopt) else e
        for e in effects
    ]  # fmt: skip


ANSWERS: dict[str, tuple[int, Answer]] = {
    "4: a crossed grant is not declined": (1, without(Declined)),
    "5: a grant is not confirmed": (1, without(Started)),
    "4: an end is not told": (1, without(Ended)),
    "4: a run goes on after its end was told": (1, _keeps_runs),
    "2: what runs is not in the snapshot": (1, without(Adopt)),
    "12: an adopted run hides its tokens": (3, _hides_tokens),
}


@pytest.mark.parametrize("fault", ANSWERS)
def test_what_a_gateway_says(fault: str) -> None:
    first, answer = ANSWERS[fault]
    assert search(first, Agents(gateway=lambda name: FaultyGateway(name, answer)))


# --- gateways that place too much, too early or where they must not -------------------------------------------------


def _no_shares(patch: Patch) -> Agents:
    patch.setattr(Ledger, "running_on", lambda self, place: 0)
    return Agents()


def _early(patch: Patch) -> Agents:
    return Agents(
        gateway=lambda name: GatewayAgent(replace(gateway_config(name), fail_open=FailOpenConfig(after_s=1.0)))
    )


def _drained(patch: Patch) -> Agents:
    patch.setattr(Router, "_is_sound", lambda self, worker: True)
    return Agents()


BYPASSES: dict[str, tuple[int, Callable[[Patch], Agents]]] = {
    "6, 8: bypass beyond the share of the slots": (3, _no_shares),
    "7: bypass before the worker is silent for long": (1, _early),
    "7: bypass although the worker drains": (3, _drained),
}


@pytest.mark.parametrize("fault", BYPASSES)
def test_where_a_gateway_places(fault: str, monkeypatch: Patch) -> None:
    first, plant = BYPASSES[fault]
    assert search(first, plant(monkeypatch))


# --- workers -------------------------------------------------------------------------------------------------------


def _numbers_ignored(patch: Patch) -> None:
    def running(state: WorkerState, gateway: Gateway, request_id: str, grant: int | None = None) -> QueueEntry | None:
        return right(state, gateway, request_id)

    right = engine_events._running
    patch.setattr(engine_events, "_running", running)


def _stop_frees(patch: Patch) -> None:
    def stop(state: WorkerState, entry: QueueEntry, reason: str) -> list[WorkerEffect]:
        effects = right(state, entry, reason)
        ends.back_to_the_queue(state, entry)
        return effects

    right = engine_events.stop
    patch.setattr(engine_events, "stop", stop)


def _loss_frees(patch: Patch) -> None:
    def on_lost(state: WorkerState, name: str) -> None:
        right(state, name)
        for entry in [e for e in state.queue.entries() if e.gateway == name]:
            ends.forget(state, entry)

    right = intake.on_lost
    patch.setattr(intake, "on_lost", on_lost)


def _one_sample(patch: Patch) -> None:
    def see(engine: EngineState, now_s: float, sample: object, settled_s: float) -> int:
        right(engine, now_s, sample, settled_s)  # type: ignore[arg-type]
        return engine.counts.missing

    right = EngineState.see
    patch.setattr(EngineState, "see", see)


def _orphans_kept(patch: Patch) -> None:
    def see(engine: EngineState, now_s: float, sample: object, settled_s: float) -> int:
        right(engine, now_s, sample, settled_s)  # type: ignore[arg-type]
        return 0

    right = EngineState.see
    patch.setattr(EngineState, "see", see)


def _unnamed_kept(patch: Patch) -> None:
    def on_synced(state: WorkerState, gateway: Gateway) -> list[WorkerEffect]:
        gateway.named |= {e.request.id for e in state.queue.entries()}
        return right(state, gateway)

    right = intake.on_synced
    patch.setattr(intake, "on_synced", on_synced)


def _foreign_ignored(patch: Patch) -> None:
    def changed(engine: EngineState) -> None:
        engine.counts.in_flight = len(engine.running)
        engine._occupancy = None

    patch.setattr(EngineState, "_changed", changed)


def _one_more(patch: Patch) -> None:
    def limit(engine: EngineState, n_run: int, b_token: int) -> None:
        right(engine, n_run + 1, b_token + 1)

    right = EngineState.limit
    patch.setattr(EngineState, "limit", limit)


def _before_synced(patch: Patch) -> None:
    def grantable(gateway: Gateway, now_s: float, engines: Iterable[str]) -> bool:
        before, gateway.synced = gateway.synced, True
        try:
            return right(gateway, now_s, engines)
        finally:
            gateway.synced = before

    right = Gateway.grantable
    patch.setattr(Gateway, "grantable", grantable)


def _whole_shares(patch: Patch) -> None:
    def shares(gateways: list[Gateway], limits: Iterable[tuple[str, int]]) -> list[tuple[EngineShare, ...]]:
        return [tuple(EngineShare(name, n_run) for name, n_run in limits)] * len(gateways)

    patch.setattr(worker_state, "shares", shares)


WORKERS: dict[str, tuple[int, Callable[[Patch], None]]] = {
    "1: numbers of grants are ignored": (5, _numbers_ignored),
    "2: grants before Synced": (2, _before_synced),
    "2: what a snapshot does not name is kept": (1, _unnamed_kept),
    "2: an adopted run is not counted": (1, lambda patch: patch.setattr(adoption, "on_adopt", lambda *_: [])),
    "3: grants before a sample": (1, lambda patch: patch.setattr(EngineState, "ready", lambda *_: True)),
    "3: what runs beyond the books is not counted": (4, _foreign_ignored),
    "3: a grant too many": (1, _one_more),
    "4: Stop frees the slot": (4, _stop_frees),
    "4: a lost stream frees the slots": (1, _loss_frees),
    "4: one sample frees the slot of an orphan": (1, _one_sample),
    "4: nothing frees the slot of an orphan": (1, _orphans_kept),
    "4: Declined does not free the slot": (1, lambda patch: patch.setattr(engine_events, "on_declined", lambda *_: [])),
    "4: a withdrawn request is granted": (1, lambda patch: patch.setattr(intake, "on_withdraw", lambda *_: None)),
    "5: no Stop": (1, lambda patch: patch.setattr(Gateway, "overdue", lambda *_: iter(()))),
    "5: a gateway that does not answer gets more": (1, lambda patch: patch.setattr(Gateway, "see", lambda *_: None)),
    "6: the shares are more than the slots": (1, _whole_shares),
    "10: an unreached engine is tried again at once": (
        1,
        lambda patch: patch.setattr(Gateway, "blocked", lambda *_: False),
    ),
    "a lost stream is not noticed": (1, lambda patch: patch.setattr(intake, "on_lost", lambda *_: None)),
}


@pytest.mark.parametrize("fault", WORKERS)
def test_what_a_worker_does(fault: str, monkeypatch: Patch) -> None:
    first, plant = WORKERS[fault]
    plant(monkeypatch)
    assert search(first)


class DrainingWorker(WorkerAgent):
    """Goes on granting."""

    def step(self, now_s: float, event: WorkerEvent) -> list[WorkerEffect]:
        effects = super().step(now_s, event)
        return effects + pump(self._state) if self._state.draining and self._state.queue.waiting else effects


def test_a_draining_worker_grants() -> None:
    agents = Agents(worker=lambda name, incarnation: DrainingWorker(worker_config(name, incarnation)))
    assert search(1, agents)


# --- engines that serve in pairs alone -----------------------------------------------------------------------------


def _one_after_the_other(patch: Patch) -> None:
    def begin(legs: Legs, now_s: float, entry: LedgerEntry, prefill: str, *, at_once: bool = False) -> None:
        right(legs, now_s, entry, prefill)

    right = Legs.begin
    patch.setattr(Legs, "begin", begin)


def _forsaken(patch: Patch) -> None:
    for module in (pump_module, engine_events):
        patch.setattr(module, "partnered", lambda engines: engines)


PAIRS: dict[str, Callable[[Patch], None]] = {
    "a gateway alone uses one": lambda patch: patch.setattr(routing, "_serves_alone", lambda engine: engine.up),
    "a gateway sends a second leg": _one_after_the_other,
    "a worker grants a whole request": lambda patch: patch.setattr(rules.PairRule, "allows", lambda *_, whole: whole),
    "a request waits for a pair that is not left": _forsaken,
    "the answering engine is not expected to have it": lambda patch: patch.setattr(
        EngineBooks, "expect", lambda *_: None
    ),
}


@pytest.mark.parametrize("fault", PAIRS)
def test_what_pairs_get(fault: str, monkeypatch: Patch) -> None:
    PAIRS[fault](monkeypatch)
    assert search(1, split=True, at_once=True)
