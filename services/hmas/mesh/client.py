"""Where the NATS server of a mesh is, for the commands: as they are told, or as the embedded mesh says."""

from pathlib import Path
from typing import Any

from hmas.mesh.state import MeshState, read_state
from hmas.runtime.bus import Bus
from hmas.runtime.ids import instance_name
from hmas.runtime.settings import RuntimeSettings
from hmas.wire.permissions import OPERATOR


def nats_settings(nats_url: str | None, data_dir: Path) -> RuntimeSettings:
    """Returns settings with the NATS URL: the given one, otherwise HMAS_NATS_URL, otherwise the embedded mesh's.

    The embedded mesh's come with the operator's user and password. Raises NoMesh if no mesh runs in `data_dir`.
    """
    settings = RuntimeSettings()
    if nats_url is not None:
        return settings.model_copy(update={"nats_url": nats_url})
    if "nats_url" in settings.model_fields_set:
        return settings
    return _settings_of(read_state(data_dir))


def _settings_of(state: MeshState) -> RuntimeSettings:
    known: dict[str, Any] = {"nats_url": state.nats_url}
    if state.nats_password_file:
        known |= {"nats_user": OPERATOR, "nats_password_file": Path(state.nats_password_file)}
    return RuntimeSettings().model_copy(update=known)


def bus_of(state: MeshState) -> Bus:
    """Returns a bus, not yet connected, to the NATS server of a running mesh."""
    return Bus(_settings_of(state), instance_name("cli"))


def open_bus(nats_url: str | None, data_dir: Path) -> Bus:
    return Bus(nats_settings(nats_url, data_dir), instance_name("cli"))
