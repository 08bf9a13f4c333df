"""How the gateway agent carries split requests from the engine that computes the prompt to the one that answers."""

from dataclasses import replace

from hmas.contracts.execution import Prefilled, Proceed
from hmas.contracts.gateway import GatewayEffect, GoOn, PromptComputed, StopRun, ToWorker
from hmas.gateway.agent.handlers.runs import give_back, stalled_end
from hmas.gateway.agent.requests.ledger import LedgerEntry, RequestState
from hmas.gateway.agent.requests.legs import Leg
from hmas.gateway.agent.state import GatewayState


def on_prompt_computed(state: GatewayState, event: PromptComputed) -> list[GatewayEffect]:
    """Tells the worker, which says where the request goes on. Without one that hears, it goes on as it was granted."""
    entry = state.ledger.get(event.request_id)
    leg = None if entry is None else state.legs.of(entry)
    if entry is None or leg is None or leg.run != event.run or leg.computed:
        return []
    state.legs.computed(state.now_s, leg)
    if state.is_unattended(entry.worker):
        return [] if leg.proceeds else _go_on(state, entry, leg, entry.engine)
    return [ToWorker(entry.worker, Prefilled(event.request_id, entry.grant, event.cached_tokens))]


def on_proceed(state: GatewayState, worker: str, message: Proceed) -> list[GatewayEffect]:
    """Sends a request on. A word that comes twice, or after the request went on, changes nothing."""
    entry = state.ledger.get(message.request_id)
    if entry is None or entry.worker != worker or entry.grant != message.grant:
        return []
    leg = state.legs.of(entry)
    if leg is None or not leg.computed or leg.proceeds:
        return []
    return _go_on(state, entry, leg, message.engine, message.due_in_s)


def _go_on(
    state: GatewayState, entry: LedgerEntry, leg: Leg, engine: str, due_in_s: float | None = None
) -> list[GatewayEffect]:
    if engine != entry.engine:
        state.ledger.change_engine(entry, engine)
    state.legs.proceeded(state.now_s, leg)
    state.stalls.started(state.now_s, entry)
    return [GoOn(entry.request.id, entry.run, entry.worker, engine, due_in_s)]


def tend(state: GatewayState) -> list[GatewayEffect]:
    """Sends on what no word came for, and gives up what is stuck. The engine that computes the prompt is at fault,
    unless the one that reads is seen to stand still with answers that have begun."""
    effects: list[GatewayEffect] = []
    for leg in state.legs.undirected(state.now_s):
        effects += _go_on(state, leg.entry, leg, leg.entry.engine)
    for leg, bound_s in state.legs.stuck(state.now_s):
        entry = leg.entry
        at_prefill = not (leg.proceeds and state.stalls.is_still(entry.ref) and _answers(state, entry))
        name = leg.prefill if at_prefill else entry.engine
        doing = "hand the prompt over" if leg.reads else "compute the prompt"
        message = f"the engine {name} did not {doing} within {bound_s:.1f} s"
        ended = replace(stalled_end(entry, message), at_prefill=at_prefill)
        effects += [StopRun(entry.request.id, entry.run, message), *give_back(state, entry, ended)]
    return effects


def _answers(state: GatewayState, reading: LedgerEntry) -> bool:
    """Returns whether the engine that reads a prompt writes answers of this gateway, too."""
    there = (each for each in state.ledger.running_at(reading.worker) if each.engine == reading.engine)
    return any(each.state is RequestState.COMMITTED for each in there)
