"""Perception and prediction in virtual time: each gateway's queue of questions, and the two services."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hmas.contracts.cognition import Answer
from hmas.contracts.gateway import RequestAnnotated
from hmas.contracts.questions import (
    AnnotateBatch,
    AskPerception,
    AskPrediction,
    BatchDue,
    CognitionFailed,
    CognitionQueueEvent,
    FallBack,
    FallbackReason,
    KindQuery,
    PerceptionAnswered,
    PredictionAnswered,
    PredictionQuery,
    Question,
    StartBatchAt,
)
from hmas.contracts.request import Cost, Tags
from hmas.contracts.routes import Role
from hmas.engine.core.profile import EngineProfile
from hmas.gateway.agent.questions.cognition_queue import CognitionQueue, CognitionQueueConfig
from hmas.laws.recording import AgentOrigin
from hmas.perception.agent import PerceptionAgent, PerceptionConfig
from hmas.perception.agent.agent import PerceiveItem
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.prediction.agent import PredictionAgent, PredictionConfig
from hmas.prediction.agent.agent import PredictItem
from hmas.prediction.agent.backend import CostQuery
from hmas.sim.estimators import cost_model, estimator, linear_costs
from hmas.sim.processes.model_server import ModelServer
from hmas.sim.processes.ports import AskingGateway, MeshPort
from hmas.sim.recordings import RecordingFolder

Perception = ModelServer[PerceiveItem, PromptView, Estimate | None, Tags]
Prediction = ModelServer[PredictItem, CostQuery, Cost, Cost]


class SimCognition:
    """The services of cognition that all gateways ask."""

    def __init__(self, perception: Perception, prediction: Prediction) -> None:
        self.perception, self.prediction = perception, prediction

    def perceive(self, questions: tuple[Question, ...], answered: Callable[[tuple[Tags, ...]], None]) -> None:
        self.perception.call(tuple(map(_perceive_item, questions)), answered)

    def predict(self, queries: tuple[PredictionQuery, ...], answered: Callable[[tuple[Cost, ...]], None]) -> None:
        self.prediction.call(tuple([_predict_item(each, kind) for each in queries for kind in each.kinds]), answered)


def make_cognition(
    mesh: MeshPort, profiles: Mapping[str, tuple[EngineProfile, ...]], seed: int, recording: RecordingFolder | None
) -> SimCognition:
    """Returns the two services as the setup wants them, for pools with engines of these profiles, and begins their
    recordings."""
    setup = mesh.setup
    reader = estimator(setup.estimator, setup.sigma, setup.accuracy, seed)

    def estimates(prompts: Sequence[PromptView]) -> list[Estimate | None]:
        return [reader.estimate(mesh.journeys[prompt.text].offered) for prompt in prompts]

    perceiving = PerceptionConfig(version=reader.version, source=reader.source, cpu_share=setup.perception_cpu_share)
    predicting, fallback = PredictionConfig(), linear_costs()
    if recording is not None:
        recording.begin(AgentOrigin(Role.PERCEPTION, "perception", perceiving))
        recording.begin(AgentOrigin(Role.PREDICTION, "prediction", (predicting, fallback.profiles)))
    costs = cost_model(setup.costs, profiles)
    return SimCognition(
        ModelServer(mesh, "perception", PerceptionAgent(perceiving), estimates, setup.perception),
        ModelServer(mesh, "prediction", PredictionAgent(predicting, fallback), costs.predict, setup.prediction),
    )


def _perceive_item(question: Question) -> PerceiveItem:
    request = question.request
    prompt = PromptView(
        text=question.text,
        prompt_tokens=request.prompt_tokens,
        model=request.model,
        tenant=request.tenant,
        max_tokens=request.max_tokens,
    )
    return PerceiveItem(
        request_id=request.id,
        prompt=prompt,
        slo=request.slo,
        slo_stated=request.slo_stated,
        importance=request.importance,
    )


def _predict_item(query: PredictionQuery, asked: KindQuery) -> PredictItem:
    request = query.question.request
    cost_query = CostQuery(
        prompt_tokens=request.prompt_tokens,
        output_tokens=query.tags.output_tokens,
        model=asked.kind.model or query.pool,
        hardware=asked.kind.hardware,
        running=asked.running,
        waiting=asked.waiting,
        kv_usage=asked.kv_usage,
        task=query.tags.task,
    )
    return PredictItem(request.id, asked.worker, cost_query)


class GatewayQuestions:
    """The shell of one gateway's cognition queue: it sends questions, and gives up those whose answer is late."""

    def __init__(self, mesh: MeshPort, gateway: AskingGateway, config: CognitionQueueConfig, *, enabled: bool) -> None:
        self._mesh, self._heap, self._gateway, self._config = mesh, mesh.heap, gateway, config
        self._queue = CognitionQueue(config, enabled=enabled)
        self._open: set[int] = set()  # calls that are neither answered nor given up
        self._handlers: dict[type, Callable[[Any], None]] = {
            StartBatchAt: lambda e: self._heap.at(max(e.at_s, self._heap.now_s), gateway.post, self.step, BatchDue()),
            AskPerception: lambda e: self._ask(e.call, mesh.cognition.perceive, e.questions, PerceptionAnswered),
            AskPrediction: lambda e: self._ask(e.call, mesh.cognition.predict, e.queries, PredictionAnswered),
            AnnotateBatch: lambda e: self._annotate(e.answers),
            FallBack: self._fall_back,
        }

    def step(self, event: CognitionQueueEvent) -> None:
        for effect in self._queue.step(self._heap.now_s, event):
            self._handlers[type(effect)](effect)

    def _ask(
        self,
        call: int,
        ask: Callable[[Any, Callable[[tuple[Answer, ...]], None]], None],
        questions: tuple[Any, ...],
        event: Callable[[int, tuple[Answer, ...]], CognitionQueueEvent],
    ) -> None:
        self._open.add(call)
        ask(questions, lambda answers: self._gateway.post(self._end, call, event(call, answers)))
        late = CognitionFailed(call, FallbackReason.LATE, "no answer within the time limit")
        self._heap.after(self._config.timeout_s, self._gateway.post, self._end, call, late)

    def _end(self, call: int, event: CognitionQueueEvent) -> None:
        if call in self._open:
            self._open.discard(call)
            self.step(event)

    def _annotate(self, answers: tuple[RequestAnnotated, ...]) -> None:
        for answer in answers:
            self._gateway.annotated(answer)

    def _fall_back(self, effect: FallBack) -> None:
        self._mesh.fallbacks[effect.reason] += len(effect.request_ids)
