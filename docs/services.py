"""The services of the mesh with their settings, in the order in which a request passes them."""

from pydantic_settings import BaseSettings

from hmas.mesh.config.sections import SERVICES

SERVICE_SETTINGS: dict[str, type[BaseSettings]] = dict(SERVICES)
