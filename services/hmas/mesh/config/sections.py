"""The sections of a configuration file: `up` for flags, `every_service`, and one for each service."""

from collections.abc import Mapping
from typing import Any

from pydantic_settings import BaseSettings

from hmas.console.settings import ConsoleSettings
from hmas.gateway.settings import GatewaySettings
from hmas.meta.settings import MetaSettings
from hmas.perception.settings import PerceptionSettings
from hmas.prediction.settings import PredictionSettings
from hmas.qos.settings import QosSettings
from hmas.runtime.settings import RuntimeSettings
from hmas.statera.settings import StateraSettings
from hmas.worker.settings import WorkerSettings

UP, COMMON = "up", "every_service"
SERVICES: Mapping[str, type[BaseSettings]] = {
    "gateway": GatewaySettings,
    "perception": PerceptionSettings,
    "prediction": PredictionSettings,
    "worker": WorkerSettings,
    "qos": QosSettings,
    "meta": MetaSettings,
    "statera": StateraSettings,
    "console": ConsoleSettings,
}
SECTIONS: Mapping[str, type[BaseSettings]] = {COMMON: RuntimeSettings, **SERVICES}
REQUIRED: Mapping[str, Mapping[str, Any]] = {"worker": {"pool": "m", "engines": "http://127.0.0.1:9"}}  # set by `up`

_GRPC = {"grpc_host": "", "grpc_port": ""}
# The settings that `hmas up` gives its services itself, and the flag that they come from, "" without one.
SET_BY_UP: Mapping[str, Mapping[str, str]] = {
    COMMON: {
        "instance": "",
        "nats_url": "nats_url",
        "ops_port": "",
        "ops_token_file": "",
        "mesh_secret_file": "",
        "log_level": "log_level",
    },
    "gateway": {
        "host": "host",
        "port": "port",
        "engine_endpoints": "engine",
        "engine_api_key_file": "engine_api_key_file",
        "perception_address": "",
        "prediction_address": "",
        "usage_dir": "data_dir",
        "replay_field": "replay",
        "tls_cert_file": "tls_cert",
        "tls_key_file": "tls_key",
        "tenants_file": "tenants",
    },
    "perception": _GRPC,
    "prediction": _GRPC,
    "worker": {
        "pool": "model",
        "engines": "engine",
        "aliases": "alias",
        "hardware": "hardware",
        "max_num_seqs": "max_num_seqs",
        "engine_api_key_file": "engine_api_key_file",
        "stream_host": "",
        "stream_port": "",
    },
    "qos": _GRPC,
    "meta": {
        **_GRPC,
        "llm_url": "llm_url",
        "llm_model": "llm_model",
        "llm_api_key_file": "llm_api_key_file",
        "rehearsal_profile": "profile",
    },
    "console": {
        "console_port": "console_port",
        "console_token_file": "",
        "console_admin_token_file": "",
        "rehearsal_profile": "profile",
    },
}
NATS_LOGIN = frozenset({"nats_user", "nats_password_file"})  # of the embedded server, made by `hmas up`
PLANNED: Mapping[str, frozenset[str]] = {  # set by `hmas up` where it follows a plan
    "worker": frozenset({"leave_grace_s", "discovery_period_s"}),
    "meta": frozenset({"plan", "plan_file", "plan_budget", "catalogue"}),
}
# Flags whose values are those of one setting: its variable outranks them where they stand in a file.
VARIABLE_OF_FLAG: Mapping[str, str] = {
    flag: f"HMAS_{setting}".upper()
    for settings in SET_BY_UP.values()
    for setting, flag in settings.items()
    if flag not in ("", "engine", "model", "data_dir", "profile", "alias")
}
# Flags that set nothing unless they are given: the variable then reaches the services as it is.
PASSED_ON = frozenset({
    "tenants", "engine_api_key_file", "llm_url", "llm_model", "llm_api_key_file", "max_num_seqs", "hardware", "alias",
})  # fmt: skip


def flag_that_sets(section: str, setting: str) -> str | None:
    """Returns the flag from which `hmas up` sets a setting, "" if it makes the value itself, None if it sets none."""
    if section == COMMON or setting in RuntimeSettings.model_fields:
        return SET_BY_UP[COMMON].get(setting)
    return SET_BY_UP.get(section, {}).get(setting)
