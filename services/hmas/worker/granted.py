"""What each gateway waits for here or runs on the worker's engines, as far as the messages tell that pass the shell."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hmas.contracts.execution import (
    Adopt,
    Declined,
    Ended,
    FirstToken,
    GatewayMessage,
    Grant,
    Progress,
    Refusal,
    Stop,
    Submit,
    Withdraw,
)
from hmas.worker.adapters.base import EngineAdapter, GrantedRun


@dataclass(slots=True)
class _Granted:
    grant: int
    engine: EngineAdapter
    run: GrantedRun
    stopped: bool = False


@dataclass(slots=True)
class _Requests:
    """One gateway's requests, by id: prompt tokens of those that wait, and the grants of the others."""

    waiting: dict[str, int] = field(default_factory=dict)
    granted: dict[str, _Granted] = field(default_factory=dict)


class GrantedRuns:
    """Tells each engine's adapter which requests run there, from the messages that pass; it decides nothing.

    Its size is bounded by the agent's own books, because the message that ends a request there ends it here too.
    """

    def __init__(self, engines: Mapping[str, EngineAdapter]) -> None:
        self._engines = engines
        self._gateways: dict[str, _Requests] = {}

    @property
    def waiting(self) -> int:
        """The number of requests that wait for a grant."""
        return sum(len(requests.waiting) for requests in self._gateways.values())

    def connect(self, gateway: str) -> None:
        self._gateways[gateway] = _Requests()

    def hear(self, gateway: str, message: GatewayMessage) -> EngineAdapter | None:
        """Takes note of a gateway's message. Returns the engine whose run the message ended, if the engine is to judge
        itself by that end."""
        requests = self._of(gateway)
        match message:
            case Submit(request=request):
                requests.waiting[request.id] = request.prompt_tokens
            case Withdraw():
                requests.waiting.pop(message.request_id, None)
            case Adopt():
                self._adopt(requests, message)
            case FirstToken():
                self._advance(requests, message.request_id, 1)
            case Progress():
                for request_id, tokens in zip(message.request_ids, message.output_tokens, strict=True):
                    self._advance(requests, request_id, tokens)
            case Declined():
                self._remove(requests, message.request_id, message.grant)
            case Ended():
                return self._end(requests, message)
            case _:
                pass  # Annotate, Started and Synced change nothing here
        return None

    def grant(self, gateway: str, message: Grant) -> Grant:
        """Takes note of a grant, and returns it with what the engine wants to find in the body."""
        requests = self._gateways.get(gateway)
        if requests is None:
            return message  # it will not arrive
        self._remove(requests, message.request_id)
        engine = self._engines[message.engine]
        run = GrantedRun(prompt_tokens=requests.waiting.pop(message.request_id, 0), urgency=message.urgency)
        engine.add(run)
        requests.granted[message.request_id] = _Granted(message.grant, engine, run)
        if run.priority is None and not engine.plugin:
            return message
        return replace(message, priority=run.priority, plugin=engine.plugin)

    def stop(self, gateway: str, message: Stop) -> None:
        """Takes note that the worker asks for a grant back, so that its end says nothing about the engine."""
        granted = self._of(gateway).granted.get(message.request_id)
        if granted is not None and granted.grant == message.grant:
            granted.stopped = True

    def refuse(self, gateway: str, message: Refusal) -> None:
        self._of(gateway).waiting.pop(message.request_id, None)

    def lose(self, gateway: str) -> None:
        """Forgets a gateway's requests; it names those that still run when it comes back."""
        for granted in self._gateways.pop(gateway, _Requests()).granted.values():
            granted.engine.remove(granted.run, None)

    def _of(self, gateway: str) -> _Requests:
        """Returns a gateway's requests; none if it is lost."""
        return self._gateways.get(gateway) or _Requests()

    def _adopt(self, requests: _Requests, message: Adopt) -> None:
        request = message.request
        self._remove(requests, request.id)
        engine = self._engines.get(message.engine)
        if engine is not None:
            tokens = max(message.output_tokens, int(message.first_token_s is not None))
            run = GrantedRun(prompt_tokens=request.prompt_tokens, urgency=None, output_tokens=tokens)
            engine.add(run)
            requests.granted[request.id] = _Granted(message.grant, engine, run)

    def _advance(self, requests: _Requests, request_id: str, output_tokens: int) -> None:
        granted = requests.granted.get(request_id)
        if granted is not None:
            granted.run.output_tokens = max(granted.run.output_tokens, output_tokens)

    def _end(self, requests: _Requests, message: Ended) -> EngineAdapter | None:
        granted = self._remove(requests, message.request_id, message.grant, message)
        if granted is None:
            return None
        if message.retryable:
            requests.waiting[message.request_id] = granted.run.prompt_tokens
        return None if granted.stopped else granted.engine

    def _remove(
        self, requests: _Requests, request_id: str, grant: int | None = None, end: Ended | None = None
    ) -> _Granted | None:
        """Takes a request off its engine and returns what it was granted; None if it runs nowhere, or under another
        grant than `grant` (None: whichever it is)."""
        granted = requests.granted.get(request_id)
        if granted is None or grant not in (None, granted.grant):
            return None
        del requests.granted[request_id]
        granted.engine.remove(granted.run, end)
        return granted
