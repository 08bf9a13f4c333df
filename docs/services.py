"""The services of the mesh with their settings, in the order in which a request passes them."""

from pydantic_settings import BaseSettings

from hmas.console.settings import ConsoleSettings
from hmas.gateway.settings import GatewaySettings
from hmas.meta.settings import MetaSettings
from hmas.perception.settings import PerceptionSettings
from hmas.prediction.settings import PredictionSettings
from hmas.qos.settings import QosSettings
from hmas.statera.settings import StateraSettings
from hmas.worker.settings import WorkerSettings

SERVICE_SETTINGS: dict[str, type[BaseSettings]] = {
    "gateway": GatewaySettings,
    "perception": PerceptionSettings,
    "prediction": PredictionSettings,
    "worker": WorkerSettings,
    "qos": QosSettings,
    "meta": MetaSettings,
    "statera": StateraSettings,
    "console": ConsoleSettings,
}
