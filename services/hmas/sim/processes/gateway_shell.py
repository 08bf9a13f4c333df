"""The simulator's shell around the gateway agent: clients on one side, workers' streams and engines on the other."""

from dataclasses import replace
from math import inf
from typing import Any

from hmas.contracts.control_agents import TimerTicked
from hmas.contracts.execution import Load, Submit
from hmas.contracts.gateway import (
    FirstTokenRelayed,
    FromWorker,
    GatewayTicked,
    GoOn,
    NoteGrant,
    PublishGatewayTelemetry,
    PublishUse,
    Refuse,
    RequestAnnotated,
    RequestReceived,
    RouteChosen,
    RunEnded,
    RunsProgressed,
    Settle,
    StartRun,
    StopRun,
    StreamChanged,
    ToWorker,
    ViewReceived,
)
from hmas.contracts.job import StageLinked
from hmas.contracts.outcome import Outcome
from hmas.contracts.questions import Question, QuestionAsked, QuestionWithdrawn
from hmas.contracts.registry import HeartbeatReceived
from hmas.engine.core.chunking import TokenDeadline
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.routing.route_chooser import RouteChooser
from hmas.laws.scoring import tpot_s
from hmas.sim.processes.cognition import GatewayQuestions
from hmas.sim.processes.first_legs import FirstLegs
from hmas.sim.processes.ports import MeshPort, SimRun
from hmas.sim.processes.process import SimProcess
from hmas.sim.workload import OfferedRequest


class SimGateway(SimProcess):
    """Steps the gateway agent, and carries out its runs on the engines."""

    def __init__(
        self, mesh: MeshPort, config: GatewayConfig, incarnation: int, chooser: RouteChooser | None = None
    ) -> None:
        super().__init__(mesh, config.gateway, incarnation, GatewayAgent(config, chooser))
        self.config = config
        self._runs: dict[str, SimRun] = {}  # by request
        self._first_legs = FirstLegs(mesh, self)
        self._open: dict[str, str] = {}  # requests that came here and are not settled; the worker each was sent to
        self._annotated: set[str] = set()
        self._questions = GatewayQuestions(
            mesh, self, mesh.setup.cognition_queue, enabled=mesh.setup.estimator != "none"
        )
        self._handlers = {
            ToWorker: self._to_worker,
            StartRun: self._start_run,
            GoOn: self._go_on,
            NoteGrant: lambda effect: None,  # its workers have no second agent, which would grant
            StopRun: self._stop_run,
            Refuse: lambda e: self._end(e.request_id, e.outcome),
            Settle: self._settle,
            PublishGatewayTelemetry: lambda e: mesh.publish(e.telemetry),
            StageLinked: lambda _: None,
            RouteChosen: lambda _: None,
            PublishUse: lambda e: mesh.publish(e.report),
        }

    def start(self) -> None:
        cadences = self._mesh.setup.cadences
        self.every(cadences.gateway_tick_s, self._tick)
        self.every(cadences.progress_s, self._progress)

    def _tick(self) -> None:
        self.step(GatewayTicked())
        self._questions.step(TimerTicked())

    def step(self, event: Any) -> None:
        """Steps the agent, and the queue of questions to cognition with what it needs to know."""
        if isinstance(event, HeartbeatReceived | ViewReceived | StreamChanged) or (
            isinstance(event, FromWorker) and isinstance(event.message, Load)
        ):
            self._questions.step(event)
        super().step(event)

    # --- clients

    def arrive(self, offered: OfferedRequest) -> None:
        """Takes a new request from a client; it goes to the agent and to cognition at the same instant."""
        self._open[offered.id] = ""
        self.post(self._receive, offered)

    def _receive(self, offered: OfferedRequest) -> None:
        self.step(RequestReceived(offered.request, offered.content, 0, offered.job, offered.job_budget_s))
        if offered.id in self._open:
            # The id stands for the prompt: what perception reads of it is looked up there.
            self._questions.step(QuestionAsked(Question(offered.request, offered.id, self._open[offered.id])))

    def annotated(self, answer: RequestAnnotated) -> None:
        if answer.request_id in self._open:
            self._annotated.add(answer.request_id)
            self.step(answer)

    def kill(self) -> None:
        """Ends the process: its connections to engines and clients end with it."""
        super().kill()
        self._first_legs.close()
        while self._runs:
            _, run = self._runs.popitem()
            run.endpoint.close(run)
        for request_id in list(self._open):
            self._end(request_id, Outcome.INTERNAL)
            self._mesh.journeys[request_id].lost = True

    def _settle(self, effect: Settle) -> None:
        advice_s = effect.retry_after_s
        if effect.outcome is Outcome.SLO_UNREACHABLE and advice_s is not None and advice_s < inf:
            self._mesh.on_advice(effect.request_id, advice_s)
        self._end(effect.request_id, effect.outcome)

    def _end(self, request_id: str, outcome: Outcome) -> None:
        self._open.pop(request_id, None)
        if request_id in self._annotated:
            self._annotated.discard(request_id)
        else:
            self._questions.step(QuestionWithdrawn(request_id))
        self._mesh.settle(request_id, outcome)

    # --- workers

    def _to_worker(self, effect: ToWorker) -> None:
        if isinstance(effect.message, Submit):
            self._open[effect.message.request.id] = effect.worker
        self._mesh.streams[self.name, effect.worker].to_worker(effect.message)

    # --- engines

    def _start_run(self, effect: StartRun) -> None:
        if effect.grant is not None and effect.grant.prefill:
            self._first_legs.start(effect, effect.grant.prefill)
        else:
            self._run_on(effect, effect.engine)

    def _go_on(self, effect: GoOn) -> None:
        start, leg = self._first_legs.take(effect)
        self._run_on(start, effect.engine, leg, inf if effect.due_in_s is None else effect.due_in_s)

    def _run_on(self, effect: StartRun, engine: str, leg: SimRun | None = None, due_in_s: float = inf) -> None:
        """Sends a request to an engine, which reads its prompt from that of the first `leg`, if there was one; its
        first token is then due in `due_in_s`."""
        grant = effect.grant
        urgency, pace_s = (0.0, None) if grant is None else (grant.urgency, grant.pace_s)
        pace = None if pace_s is None else TokenDeadline(pace_s)
        endpoint = self._mesh.endpoints[engine]
        run = SimRun(
            request_id=effect.request_id, run=effect.run, gateway=self, endpoint=endpoint, fenced=grant is not None
        )
        if effect.request_id in self._runs:
            raise RuntimeError(f"request {effect.request_id} is started twice: a fault of the gateway's agent")
        self._runs[effect.request_id] = run
        journey = self._mesh.journeys[effect.request_id]
        if grant is not None:
            journey.granted_tokens = journey.bound_tokens = grant.timeline.upper_output_tokens
        request = journey.offered.engine_request(urgency, pace)
        if leg is not None and endpoint.links is not None:
            run.leg_cached_tokens = leg.cached_tokens
            endpoint.links.offer(endpoint, effect.request_id, leg.endpoint, leg.request_id, due_in_s)
            request = replace(request, reads=True)
        endpoint.send(run, request)

    def _stop_run(self, effect: StopRun) -> None:
        self._first_legs.stop(effect.request_id)
        run = self._runs.get(effect.request_id)
        if run is not None and run.run == effect.run:
            del self._runs[effect.request_id]
            run.endpoint.close(run)

    def _progress(self) -> None:
        runs, found = self._runs, []
        for endpoint in dict.fromkeys(run.endpoint for run in runs.values()):
            for item in endpoint.progress():
                run = runs.get(item[0])
                if run is not None and run.relayed and run.endpoint is endpoint:
                    found.append(item)
        if found:
            self.step(RunsProgressed(tuple(found)))

    def first_token(self, run: SimRun) -> None:
        if self._runs.get(run.request_id) is run:
            run.relayed = True
            journey = self._mesh.journeys[run.request_id]
            journey.engine_first_s, journey.first_token_s = run.first_s, self._heap.now_s
            journey.cached_tokens = run.prompt_cached
            self.step(FirstTokenRelayed(run.request_id, run.run))

    def finished(self, run: SimRun) -> None:
        """Takes the end of an answer. TPOT is measured where the engine issues the tokens; the delay from there to the
        client is the same for all tokens and cancels out."""
        if self._runs.get(run.request_id) is not run:
            return
        journey = self._mesh.journeys[run.request_id]
        journey.engine_last_s, journey.last_token_s = run.last_s, self._heap.now_s
        journey.output_tokens = tokens = journey.offered.output_tokens
        gap_s = 0.0 if run.first_s is None or run.last_s is None else tpot_s(run.first_s, run.last_s, tokens)
        end: dict[str, Any] = {}
        if journey.offered.request.prefix.nodes:
            end = {"prompt_tokens": journey.offered.request.prompt_tokens, "cached_tokens": run.prompt_cached}
        self._ended(run, outcome=Outcome.FINISHED, status=200, output_tokens=tokens, tpot_s=gap_s, **end)

    def failed(self, run: SimRun, outcome: Outcome, message: str, busy: bool, unreached: bool) -> None:
        """Takes the end of a run that the engine refused or lost."""
        if self._runs.get(run.request_id) is run:
            retryable = not run.relayed and outcome is not Outcome.ENGINE_REFUSED
            self._ended(run, outcome=outcome, message=message, retryable=retryable, busy=busy, unreached=unreached)

    def _ended(self, run: SimRun, **end: Any) -> None:
        del self._runs[run.request_id]
        self.step(RunEnded(request_id=run.request_id, run=run.run, **end))
