"""H-MAS from Python: the names that other programs may import, which docs/python.md explains.

Each keeps its name and its meaning between versions, or `CHANGELOG.md` says under *Upgrading* what takes its place. A
name is imported when it is first used, so that a program needs only the extras of what it uses.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from hmas.runtime.extras import needs

if TYPE_CHECKING:
    from hmas.contracts.control import Hints as Hints
    from hmas.contracts.execution import Grant as Grant
    from hmas.contracts.execution import Submit as Submit
    from hmas.contracts.execution import Synced as Synced
    from hmas.contracts.registry import EngineInfo as EngineInfo
    from hmas.contracts.request import Request as Request
    from hmas.contracts.request import Slo as Slo
    from hmas.contracts.worker import EngineSampled as EngineSampled
    from hmas.contracts.worker import EngineWentUp as EngineWentUp
    from hmas.contracts.worker import FromGateway as FromGateway
    from hmas.contracts.worker import GatewayConnected as GatewayConnected
    from hmas.contracts.worker import ToGateway as ToGateway
    from hmas.mesh.options import MeshOptions as MeshOptions
    from hmas.mesh.supervisor import Mesh as Mesh
    from hmas.mesh.supervisor import MeshFailed as MeshFailed
    from hmas.sim.simulate import SimulatedRequest as SimulatedRequest
    from hmas.sim.simulate import SimulatedTable as SimulatedTable
    from hmas.sim.simulate import simulate as simulate
    from hmas.worker.agent.agent import WorkerAgent as WorkerAgent
    from hmas.worker.agent.config import WorkerConfig as WorkerConfig
    from hmas_loadgen.plan import Lengths as Lengths
    from hmas_loadgen.plan import LoadPlan as LoadPlan
    from hmas_loadgen.plan import Target as Target
    from hmas_loadgen.result import LoadResult as LoadResult
    from hmas_loadgen.runner.run import run_load as run_load
    from hmas_loadgen.source import Source as Source

_MODULES: Mapping[str, tuple[str, ...]] = {
    "hmas.mesh.supervisor": ("Mesh", "MeshFailed"),
    "hmas.mesh.options": ("MeshOptions",),
    "hmas.sim.simulate": ("SimulatedRequest", "SimulatedTable", "simulate"),
    "hmas_loadgen.source": ("Source",),
    "hmas_loadgen.plan": ("Lengths", "LoadPlan", "Target"),
    "hmas_loadgen.runner.run": ("run_load",),
    "hmas_loadgen.result": ("LoadResult",),
    "hmas.worker.agent.agent": ("WorkerAgent",),
    "hmas.worker.agent.config": ("WorkerConfig",),
    "hmas.contracts.control": ("Hints",),
    "hmas.contracts.execution": ("Grant", "Submit", "Synced"),
    "hmas.contracts.registry": ("EngineInfo",),
    "hmas.contracts.request": ("Request", "Slo"),
    "hmas.contracts.worker": ("EngineSampled", "EngineWentUp", "FromGateway", "GatewayConnected", "ToGateway"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __dir__() -> list[str]:
    return sorted(_PLACES)


def __getattr__(name: str) -> Any:
    """Returns a public name. Raises AttributeError if there is none such, and CannotStart, with the command that adds
    it, if a package that it needs is not installed."""
    if name not in _PLACES:
        raise AttributeError(f"hmas.api has no {name!r}: use one of {', '.join(sorted(_PLACES))}")
    module = _PLACES[name]
    extra = "load" if module.startswith("hmas_loadgen") else "sim" if module.startswith("hmas.sim") else "all"
    with needs(extra):
        return getattr(import_module(module), name)
