"""The bus in virtual time: who hears a message, and when."""

from collections.abc import Callable, Iterable
from typing import Any

from hmas.contracts.routes import Role, Route
from hmas.sim.processes.heap import EventHeap

Party = tuple[Callable[[Any], None], dict[str, str]]  # steps an agent; what the agent is called in routes


class SimBus:
    """Brings each message, `delay_s` after it was sent, as an event to the agents that hear it according to `routes`.
    `parties` has the agents of each role."""

    def __init__(self, heap: EventHeap, delay_s: float, routes: Iterable[Route]) -> None:
        self.parties: dict[Role, list[Party]] = {}
        self._heap, self._delay_s = heap, delay_s
        self._routes = {route.message: route for route in routes}

    def publish(self, message: Any) -> None:
        """Sends a message. One without a route is dropped."""
        route = self._routes.get(type(message))
        if route is None:
            return
        for hearer in route.hearers:
            for step, own in self.parties.get(hearer.role, ()):
                if hearer.event is not None and (not hearer.own or own[route.about] == getattr(message, route.about)):
                    self._heap.after(self._delay_s, step, hearer.event(message))
