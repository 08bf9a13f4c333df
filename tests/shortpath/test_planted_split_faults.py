"""Each rule of requests that two engines serve, broken once on purpose: the world must find it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hmas.contracts.execution import Adopt, Prefilled
from hmas.contracts.gateway import GatewayEffect, ToWorker
from hmas.gateway.agent.handlers import second_legs
from hmas.gateway.agent.requests.ledger import LedgerEntry
from hmas.gateway.agent.requests.legs import Leg, Legs
from hmas.gateway.agent.state import GatewayState
from hmas.worker.agent.engines.books import EngineBooks
from hmas.worker.agent.engines.engine_state import EngineState
from hmas.worker.agent.entry.entry import QueueEntry
from hmas.worker.agent.split.split_books import SplitBooks
from tests.shortpath.test_planted_faults import Answer, FaultyGateway, search, without
from tests.shortpath.world import Agents

pytestmark = pytest.mark.long  # tests of the world in which the protocol is tested
Patch = pytest.MonkeyPatch


def _adopts(change: Callable[[Adopt], Adopt]) -> Answer:
    """Snapshots say something else of what runs."""

    def answer(effects: list[GatewayEffect]) -> list[GatewayEffect]:
        return [
            replace(e, message=change(e.message)) if isinstance(e, ToWorker) and isinstance(e.message, Adopt) else e
            for e in effects
        ]

    return answer


GATEWAYS: dict[str, tuple[int, Answer]] = {
    "an adopted run hides who computes its prompt": (1, _adopts(lambda adopt: replace(adopt, prefill=""))),
    "an adopted run hides that its prompt is computed": (1, _adopts(lambda adopt: replace(adopt, prefilled=False))),
    "that a prompt is computed is not told": (1, without(Prefilled)),
}


@pytest.mark.parametrize("fault", GATEWAYS)
def test_what_a_gateway_says_of_two_engines(fault: str) -> None:
    first, answer = GATEWAYS[fault]
    assert search(first, Agents(gateway=lambda name: FaultyGateway(name, answer)), split=True)


def _proceeds_twice(patch: Patch) -> None:
    def go_on(state: GatewayState, entry: LedgerEntry, leg: Leg, *rest: Any) -> list[GatewayEffect]:
        effects = right(state, entry, leg, *rest)
        leg.proceeds = False
        return effects

    right = second_legs._go_on
    patch.setattr(second_legs, "_go_on", go_on)


def _never_undirected(patch: Patch) -> None:
    patch.setattr(Legs, "undirected", lambda *_: iter(()))
    patch.setattr(GatewayState, "is_unattended", lambda *_: False)


def _runs_on(patch: Patch) -> None:
    """The slot of the prompt is not free again when it is computed."""

    def computed(books: SplitBooks, now_s: float, entry: QueueEntry) -> bool:
        found = books._open.get(entry.request.id)
        if found is None or found.computed_s is not None:
            return False
        found.computed_s = now_s
        found.answer.books.expect(now_s, entry)
        return True

    patch.setattr(SplitBooks, "computed", computed)


def _ends_at_answer_alone(patch: Patch) -> None:
    patch.setattr(SplitBooks, "end", lambda books, now_s, entry: books._open.pop(entry.request.id, None))


def _memory_kept(patch: Patch) -> None:
    patch.setattr(SplitBooks, "_free", staticmethod(lambda found: None))


def _prompt_uncounted(patch: Patch) -> None:
    def occupy(engine: EngineState, now_s: float, entry: QueueEntry, prefill_s: float | None) -> None:
        if entry.prefill_on != entry.engine or entry.engine != engine.name:
            right(engine, now_s, entry, prefill_s)

    right = EngineState.occupy
    patch.setattr(EngineState, "occupy", occupy)


def _computed_twice(patch: Patch) -> None:
    def computed(books: SplitBooks, now_s: float, entry: QueueEntry) -> bool:
        found = books._open.get(entry.request.id)
        if found is not None and found.computed_s is not None:
            found.prefill.keep(found.held_blocks)
            return True
        return right(books, now_s, entry)

    right = SplitBooks.computed
    patch.setattr(SplitBooks, "computed", computed)


def _sought_too_early(patch: Patch) -> None:
    """The answering engine's own counts are asked for a request whose prompt is not computed."""
    patch.setattr(EngineBooks, "expect", lambda *_: None)
    right = EngineBooks.occupy

    def occupy(books: EngineBooks, *rest: Any) -> None:
        right(books, *rest)
        books.awaited.clear()

    patch.setattr(EngineBooks, "occupy", occupy)


AGENTS: dict[str, Callable[[Patch], None]] = {
    "gateway: a second word sends a second leg": _proceeds_twice,
    "gateway: waits for ever for a worker that is gone": _never_undirected,
    "worker: a computed prompt keeps its slot": _runs_on,
    "worker: an end frees the answering engine alone": _ends_at_answer_alone,
    "worker: the memory of a prompt is never free": _memory_kept,
    "worker: a prompt takes no slot": _prompt_uncounted,
    "worker: a prompt that is told twice is kept twice": _computed_twice,
    "worker: what waits for its prompt counts as lost": _sought_too_early,
}


@pytest.mark.parametrize("fault", AGENTS)
def test_what_the_agents_do_with_two_engines(fault: str, monkeypatch: Patch) -> None:
    AGENTS[fault](monkeypatch)
    assert search(1, split=True)
