"""The first legs of a simulated gateway's split runs: prompts that one engine computes for another."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from hmas.contracts.gateway import GoOn, PromptComputed, RunEnded, StartRun
from hmas.contracts.outcome import Outcome
from hmas.sim.processes.ports import MeshPort, SimRun


class LegGateway(Protocol):
    """The gateway of the legs."""

    name: str

    def post(self, call: Callable[..., object], *args: Any) -> None: ...

    def step(self, event: Any) -> None: ...


class FirstLegs:
    """Sends the first legs to their engines, and keeps what is needed to go on until the request does."""

    def __init__(self, mesh: MeshPort, gateway: LegGateway) -> None:
        self.name = gateway.name
        self.post = gateway.post
        self._mesh, self._gateway = mesh, gateway
        self._open: dict[str, tuple[StartRun, SimRun]] = {}  # by request

    def start(self, effect: StartRun, prefill: str) -> None:
        endpoint = self._mesh.endpoints[prefill]
        leg = f"{effect.request_id}/{effect.run}"
        run = SimRun(request_id=leg, run=effect.run, gateway=self, endpoint=endpoint, fenced=True)
        self._open[effect.request_id] = effect, run
        whole = self._mesh.journeys[effect.request_id].offered.engine_request()
        endpoint.send(run, replace(whole, id=leg, output_tokens=1, answer_hashes=(), lends=True))

    def take(self, effect: GoOn) -> tuple[StartRun, SimRun]:
        """Returns the run and its first leg, which is over."""
        return self._open.pop(effect.request_id)

    def stop(self, request_id: str) -> None:
        found = self._open.pop(request_id, None)
        if found is not None:
            found[1].endpoint.close(found[1])

    def close(self) -> None:
        for request_id in list(self._open):
            self.stop(request_id)

    # --- what the engine says

    def first_token(self, run: SimRun) -> None:
        pass

    def finished(self, run: SimRun) -> None:
        request_id, links = run.request_id.rpartition("/")[0], run.endpoint.links
        if links is not None:
            links.lend(run.endpoint, run.request_id)
        if self._is_open(request_id, run):
            self._gateway.step(PromptComputed(request_id, run.run, run.cached_tokens))

    def failed(self, run: SimRun, outcome: Outcome, message: str, busy: bool, unreached: bool) -> None:
        request_id = run.request_id.rpartition("/")[0]
        if not self._is_open(request_id, run):
            return
        del self._open[request_id]
        ended = RunEnded(
            request_id=request_id,
            run=run.run,
            outcome=outcome,
            message=message,
            retryable=outcome is not Outcome.ENGINE_REFUSED,
            busy=busy,
            unreached=unreached,
            at_prefill=True,
        )
        self._gateway.step(ended)

    def _is_open(self, request_id: str, run: SimRun) -> bool:
        return request_id in self._open and self._open[request_id][1] is run
