"""Recordings of agents: a run writes every event and its effects, and a replay steps a fresh agent through them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO, get_type_hints

from hmas import entry_points
from hmas.contracts.agent import Agent
from hmas.contracts.routes import Role
from hmas.entry_points import PluginMakers
from hmas.gateway.agent import GatewayAgent
from hmas.gateway.agent.config import GatewayConfig
from hmas.laws.recording import (
    AgentOrigin,
    RecordingError,
    classes_of,
    origin_line,
    parse_origin,
    parse_step,
    role_of,
    step_line,
)
from hmas.meta.agent import MetaAgent
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.table import SELECTORS
from hmas.perception.agent import PerceptionAgent, PerceptionConfig
from hmas.prediction.agent import PredictionAgent, PredictionConfig
from hmas.prediction.agent.linear import LinearCostModel, LinearProfile
from hmas.qos.agent import QosAgent
from hmas.qos.agent.config import QosConfig
from hmas.statera.agent import StateraAgent
from hmas.statera.agent.config import StateraConfig
from hmas.worker.agent import WorkerAgent, WorkerConfig
from hmas.worker.agent.order.plugged import plugged
from hmas.worker.agent.order.topologies import TOPOLOGIES

_Agents = dict[Role, tuple[Any, tuple[Any, ...], Callable[[AgentOrigin], Agent[Any, Any]]]]

# By role: the agent's class, the types of its config, and how the agent is made from a recording's origin.
AGENTS: _Agents = {
    Role.GATEWAY: (GatewayAgent, (GatewayConfig,), lambda o: GatewayAgent(o.config)),
    Role.WORKER: (
        WorkerAgent,
        (WorkerConfig,),
        lambda o: WorkerAgent(o.config, plugged(PluginMakers(entry_points.TOPOLOGIES, TOPOLOGIES))),
    ),
    Role.PERCEPTION: (PerceptionAgent, (PerceptionConfig,), lambda o: PerceptionAgent(o.config)),
    Role.PREDICTION: (
        PredictionAgent,
        (PredictionConfig, LinearProfile),
        lambda o: PredictionAgent(o.config[0], LinearCostModel(o.config[1])),
    ),
    Role.QOS: (QosAgent, (QosConfig,), lambda o: QosAgent(o.config)),
    Role.META: (
        MetaAgent,
        (MetaConfig,),
        lambda o: MetaAgent(o.config, PluginMakers(entry_points.SELECTORS, SELECTORS)),
    ),
    Role.STATERA: (StateraAgent, (StateraConfig,), lambda o: StateraAgent(o.config)),
}


class RecordingFolder:
    """Writes one recording per agent to a folder, as `<agent>.jsonl`. It must be closed at the end."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._files: dict[str, TextIO] = {}

    def begin(self, origin: AgentOrigin) -> None:
        self._files[origin.name] = file = (self._folder / f"{origin.name}.jsonl").open("w", encoding="utf-8")
        file.write(origin_line(origin))

    def add(self, name: str, now_s: float, event: object, effects: Sequence[object]) -> None:
        self._files[name].write(step_line(now_s, event, effects))

    def close(self) -> None:
        for file in self._files.values():
            file.close()


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first effect in which a replay differs from its recording: at the step number `step` (from 1), `expected` was
    recorded and `got` came from the replay; either is None if that side has fewer effects."""

    step: int
    now_s: float
    event: object
    expected: object | None
    got: object | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay. `steps` and `effects` count up to and including the first step that differs; `difference`
    is None if all are equal."""

    origin: AgentOrigin
    steps: int
    effects: int
    difference: FirstDifference | None


def replay(path: Path) -> Replayed:
    """Steps a fresh agent through the recording in the file `path` and compares its effects with the recorded ones.
    Raises RecordingError if the file is not a valid recording, OSError if it cannot be read."""
    with path.open(encoding="utf-8") as file:
        first = file.readline()
        role = role_of(first)
        if role not in AGENTS:
            raise RecordingError(f"the recording is of {role}, not of an agent: choose one of {', '.join(AGENTS)}")
        cls, configs, make = AGENTS[role]
        classes = classes_of(*configs, *get_type_hints(cls.step).values())
        origin = parse_origin(first, classes)
        return _replay(origin, make(origin), file, classes)


def _replay(origin: AgentOrigin, agent: Agent[Any, Any], file: TextIO, classes: Mapping[str, type]) -> Replayed:
    steps = count = 0
    for line in file:
        if not line.endswith("\n"):
            break  # the process ended while it wrote this line
        now_s, event, recorded = parse_step(line, classes)
        steps += 1
        count += len(recorded)
        for expected, got in zip_longest(recorded, agent.step(now_s, event)):
            if expected != got and repr(expected) != repr(got):  # NaN does not equal itself, but its repr does
                return Replayed(origin, steps, count, FirstDifference(steps, now_s, event, expected, got))
    return Replayed(origin, steps, count, None)
