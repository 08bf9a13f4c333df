"""What a simulated mesh is made of."""

from dataclasses import dataclass, field

from hmas.contracts.cadences import SIMULATED, Cadences
from hmas.contracts.control import Hints, TopologyName
from hmas.gateway.agent.config import GatewayConfig
from hmas.meta.agent.config import MetaConfig
from hmas.qos.agent.config import QosConfig
from hmas.statera.agent.config import StateraConfig
from hmas.worker.agent.config import WorkerConfig

POOL = "model"
PLUGIN_CHUNK_TOKENS = 2560  # as the simulated Niyama has


@dataclass(frozen=True, slots=True)
class Delays:
    """One-way delays, seconds: what shells and networks add to decisions. `relay_s`: gateway-worker stream with its
    coalescing; `engine_s`: HTTP between worker and engine; `bus_s`: NATS."""

    relay_s: float = 0.001
    engine_s: float = 0.001
    bus_s: float = 0.001


@dataclass(frozen=True, slots=True)
class SimCognitionConfig:
    """One server for perception and prediction: a batch takes `fixed_s + per_request_s * n` (1.64 ms a request in H-MAS
    App. E.4), at most `max_batch` at a time, and it answers `network_s` after the batch is done."""

    fixed_s: float = 0.004
    per_request_s: float = 0.00164
    max_batch: int = 32
    network_s: float = 0.002


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSetup:
    """One mesh. `pin`: an operator's pin, which takes the meta controller's place. `estimator`: perfect, noisy,
    short-claims, rules, prior or recorded; `sigma` and `accuracy` qualify `noisy`. Costs come from the engine's own
    cost model, with `rules` from linear statistics. `statera` off: the worker's static limits, and bounds of the
    predictor's own 90 % quantile in place of calibrated ones. `workers` share the engines evenly. `plugin`: the engines
    run our scheduler plug-in, with chunks of up to `PLUGIN_CHUNK_TOKENS`.
    """

    name: str = "hmas"
    estimator: str = "noisy"
    sigma: float = 0.35
    accuracy: float = 0.942
    pin: TopologyName | None = None
    hints: Hints = field(default_factory=Hints)
    statera: bool = True
    workers: int = 1
    plugin: bool = False
    delays: Delays = field(default_factory=Delays)
    cadences: Cadences = SIMULATED
    cognition: SimCognitionConfig = field(default_factory=SimCognitionConfig)
    gateway_config: GatewayConfig = field(default_factory=lambda: GatewayConfig(gateway="g0"))
    qos_config: QosConfig = field(default_factory=QosConfig)
    meta_config: MetaConfig = field(default_factory=MetaConfig)
    statera_config: StateraConfig = field(default_factory=StateraConfig)
    worker_config: WorkerConfig = field(
        default_factory=lambda: WorkerConfig(worker="w0", incarnation="1", address="", pool=POOL)
    )
