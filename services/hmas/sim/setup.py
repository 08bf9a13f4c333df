"""The configuration of a simulated mesh."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hmas import entry_points
from hmas.contracts.cadences import SIMULATED, Cadences
from hmas.contracts.control import Hints, Split, TopologyName
from hmas.engine.core.profile import EngineProfile
from hmas.entry_points import PluginMakers
from hmas.gateway.agent.config import GatewayConfig
from hmas.gateway.agent.questions.cognition_queue import CognitionQueueConfig
from hmas.meta.agent.config import MetaConfig
from hmas.meta.agent.selectors.table import SELECTORS, MakeSelector
from hmas.perception.agent.agent import CPU_SHARE
from hmas.qos.agent.config import QosConfig
from hmas.sim.engine_changes import EngineChange
from hmas.sim.faults import Fault
from hmas.sim.network.fabric import Fabric
from hmas.sim.network.reads import ChunkedReads
from hmas.sim.scripted_llm import SimulatedModel
from hmas.sim.times import ModelTimes, measured_times
from hmas.statera.agent.config import StateraConfig
from hmas.worker.agent.config import WorkerConfig
from hmas.worker.agent.order.plugged import plugged
from hmas.worker.agent.order.topologies import TOPOLOGIES, MakeTopology

POOL = "model"
PLUGIN_CHUNK_TOKENS = 2560  # the same as the largest chunk of the simulated Niyama


@dataclass(frozen=True, slots=True)
class Delays:
    """One-way delays in seconds that live shells and networks add: `relay_s` on the stream between gateway and worker,
    `engine_s` on HTTP between gateway and engine, `bus_s` on NATS."""

    relay_s: float = 0.001
    engine_s: float = 0.001
    bus_s: float = 0.001


@dataclass(frozen=True, slots=True)
class PoolSetup:
    """One pool of the mesh: the model's name, its `engines` of one `profile`, then those of `others` (profiles and how
    many of each), and the workers to which all of them are dealt out in turn. Where `kv_tokens_per_s` is above 0, any
    two of the engines can hand KV over, and each one's port moves so many tokens in a second in each direction, in a
    network of `kv_fabric`; they read as stock ones do, or in chunks as `kv_chunked` says. `roles` are what they are
    meant for, in the order of their numbers."""

    name: str
    profile: EngineProfile
    engines: int
    workers: int = 1
    others: tuple[tuple[EngineProfile, int], ...] = ()
    kv_tokens_per_s: float = 0.0
    roles: tuple[str, ...] = ()
    kv_chunked: ChunkedReads | None = None
    kv_fabric: Fabric = Fabric()  # noqa: RUF009 (it is frozen)

    @property
    def profiles(self) -> tuple[EngineProfile, ...]:
        """The profile of each engine, in the order of their numbers."""
        kinds = ((self.profile, self.engines), *self.others)
        return tuple(profile for profile, number in kinds for _ in range(number))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshSetup:
    """The configuration of one simulated mesh.

    - `estimator` is perception's model: shipped, rules, prior (perception's own, without a model), none (gateways ask
      nobody), and the oracles perfect, noisy and short-claims, whose errors are `sigma` and `accuracy`. `costs` is
      prediction's: shipped, linear, or the oracle engine (see `hmas.sim.estimators`). `perception` and `prediction` are
      the times that they take, by default those measured of the models that ship (`hmas.sim.times`). Perception's time
      counts as that of a core, of which it may take `perception_cpu_share`.
    - `pin` is an operator's pin, with its `hints`, which overrules meta; None leaves the choice to meta.
      `split` is that of the pin; None leaves the layout to meta. `splits` are those that take its place, each from
      its instant on.
    - `statera` false turns Statera off: workers keep their static limits, and a length bound is the predictor's own
      90 % quantile instead of a calibrated one.
    - `workers` is their number; they share the engines evenly. `pools`, if given, takes the place of the one pool
      `POOL` with `workers` and the engines that `MeshSim` is given. Workers (w0, w1 ...) and engines (e0, e1 ...) are
      numbered over all pools.
    - `gateways` is their number (g0, g1 ...); requests go to them in turn, to each as often as its number in
      `gateway_weights` says (once, if that is empty). A dead gateway gets none.
    - `changes` let engines of the pools join and leave at their instants.
    - `faults` happen at their instants. A stream closes after `silence_s` of silence, and a gateway dials a worker
      every `redial_s` while the stream is closed. An engine that answers no sample for `engine_lost_s` counts as down.
      All in s.
    - `topologies` are those that workers have, `selectors` those that meta's configuration may name: the built-in ones
      and those of installed packages, which are imported when a run first uses one. `language_model` answers what the
      selector `llm` asks.
    - `plugin` true gives the engines H-MAS's scheduler plug-in, with chunks of up to `PLUGIN_CHUNK_TOKENS`.

    Raises ValueError if the pin names no topology.
    """

    name: str = "hmas"
    estimator: str = "shipped"
    sigma: float = 0.35
    accuracy: float = 0.942
    pin: TopologyName | None = None
    hints: Hints = field(default_factory=Hints)
    split: Split | None = None
    splits: tuple[tuple[float, Split], ...] = ()
    statera: bool = True
    workers: int = 1
    pools: tuple[PoolSetup, ...] = ()
    gateways: int = 1
    gateway_weights: tuple[int, ...] = ()
    changes: tuple[EngineChange, ...] = ()
    faults: tuple[Fault, ...] = ()
    silence_s: float = 2.0
    redial_s: float = 0.25
    engine_lost_s: float = 3.0
    plugin: bool = False
    delays: Delays = field(default_factory=Delays)
    cadences: Cadences = SIMULATED
    costs: str = "shipped"
    perception: ModelTimes = field(default_factory=lambda: measured_times("perception"))
    perception_cpu_share: float = CPU_SHARE
    prediction: ModelTimes = field(default_factory=lambda: measured_times("prediction"))
    cognition_queue: CognitionQueueConfig = field(default_factory=CognitionQueueConfig)
    gateway_config: GatewayConfig = field(default_factory=lambda: GatewayConfig(gateway="g0"))
    qos_config: QosConfig = field(default_factory=QosConfig)
    meta_config: MetaConfig = field(default_factory=MetaConfig)
    topologies: Mapping[str, MakeTopology] = field(
        default_factory=lambda: plugged(PluginMakers(entry_points.TOPOLOGIES, TOPOLOGIES)), hash=False
    )
    selectors: Mapping[str, MakeSelector] = field(
        default_factory=lambda: PluginMakers(entry_points.SELECTORS, SELECTORS), hash=False
    )
    language_model: SimulatedModel = field(default_factory=SimulatedModel)
    statera_config: StateraConfig = field(default_factory=StateraConfig)
    worker_config: WorkerConfig = field(
        default_factory=lambda: WorkerConfig(worker="w0", incarnation="1", address="", pool=POOL)
    )

    @property
    def observes(self) -> bool:
        """Whether gateways place all requests themselves, and nothing is scheduled."""
        return self.gateway_config.observe

    def worker_of(self, number: int, pool: str) -> WorkerConfig:
        """Returns the configuration of the worker with that number."""
        name = f"w{number}"
        return replace(self.worker_config, worker=name, incarnation="1", pool=pool, observes=self.observes)

    def __post_init__(self) -> None:
        if self.pin is not None and self.pin not in self.topologies:
            raise ValueError(f"the pin {self.pin} is not a topology: use one of {', '.join(self.topologies)}")
