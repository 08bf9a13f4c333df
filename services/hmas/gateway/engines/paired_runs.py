"""A split run whose legs run at once: both engines get the same body, with fields by which they find one another, as
SGLang has it. One computes the prompt and hands its KV over; the other one answers."""

from collections.abc import Callable
from dataclasses import replace
from random import getrandbits

from hmas.contracts.outcome import Outcome
from hmas.gateway.api_form import ApiForm
from hmas.gateway.engines.replies import ReplyEnd
from hmas.gateway.engines.runs import GatewayRun, StreamedRun
from hmas.gateway.engines.split_runs import extended, lost_its_prompt
from hmas.gateway.engines.target import EngineTarget

ROOM_BITS = 63  # of the number under which the two engines know a request


def paired_body(body: tuple[bytes, bytes], prefill: EngineTarget, port: int) -> tuple[bytes, bytes]:
    """Returns the body that both engines get. `port`: where the one that computes the prompt is asked for its KV."""
    host = f"[{prefill.host}]" if ":" in prefill.host else prefill.host
    room = getrandbits(ROOM_BITS)
    return extended(body, {"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": room})


class PromptLeg:
    """Follows the answer of the engine that computes the prompt, of which the client sees nothing. `done` is called
    with the tokens that it had cached (None: it did not say) once it ends well. If it fails before a token of `run`
    was relayed, that one ends with the failure."""

    def __init__(
        self, run: GatewayRun, done: Callable[[int | None], None], max_bytes: int, *, form: ApiForm, stream: bool
    ) -> None:
        self.failed = False
        self._run, self._done = run, done
        number, name = run.number, run.request_id
        if stream:
            self.reader: GatewayRun = StreamedRun(name, number, self, lambda _: None, strip_usage=False, form=form)
        else:
            self.reader = GatewayRun(name, number, self, max_bytes, form=form)

    def stop(self) -> None:
        self.reader.stop()

    def blames(self, run: GatewayRun, end: ReplyEnd) -> bool:
        """Returns whether the engine that computes the prompt is at fault if `run` ends so."""
        return self.failed or lost_its_prompt(run, end)

    def fail(self, reason: str, *, unreached: bool = False) -> None:
        """Ends the run because the engine cannot be asked."""
        self.reader.fail(reason, unreached=unreached)

    # --- RunSink, of the reader ---

    def on_first(self, run: GatewayRun) -> None:
        """It is the answering engine's token that the client gets."""

    def on_end(self, run: GatewayRun, end: ReplyEnd) -> None:
        if end.outcome is Outcome.FINISHED:
            self._done(end.usage.cached_tokens)
        elif not self._run.tokens:
            self.failed = True
            self._run.end(replace(end, retryable=end.outcome is Outcome.ENGINE_ERROR))
