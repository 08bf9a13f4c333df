"""What an operator configures of an engine, and how it hands KV over to others by that and by its own pages."""

from dataclasses import dataclass
from typing import Any

import structlog

from hmas.contracts.registry import SGLANG
from hmas.laws.figures import sane_int

log = structlog.get_logger()

BOOTSTRAP_PORT = 8998  # SGLang's default for --disaggregation-bootstrap-port
_HALVES = ("prefill", "decode")  # of SGLang's --disaggregation-mode


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """What the operator configured of an engine. None, and the dialect `auto`, mean that the engine is asked. `pool` is
    the model for which gateways ask it ("": any). `endpoint` is the URL under which gateways reach it, `epoch` that of
    the lease by which the worker has the engine (0: none)."""

    name: str
    pool: str = ""
    endpoint: str = ""
    dialect: str = "auto"
    hardware: str = "unknown"
    model: str = ""
    max_num_seqs: int | None = None
    max_model_len: int | None = None
    kv_capacity_tokens: int | None = None
    epoch: int = 0
    kv_transfer: str = ""
    role: str = ""
    bootstrap_port: int | None = None


@dataclass(frozen=True, slots=True)
class Handing:
    """How an engine hands KV over: the fields of `EngineInfo` of these names, and `version` for its `kv_version`."""

    kv: str = ""
    role: str = ""
    bootstrap_port: int = 0
    version: str = ""


def handing_of(facts: EngineFacts, server: dict[str, Any]) -> Handing:
    """Returns how an engine hands KV over. `server`: what SGLang's `/server_info` says, empty if it is no SGLang or
    does not say. SGLang's own word holds, because an engine in a disaggregation mode refuses what does not fit it."""
    mode = server.get("disaggregation_mode")
    if mode in _HALVES:
        kv, role = SGLANG, str(mode)
    elif facts.kv_transfer == SGLANG and mode is not None:
        log.warning(
            "engine_hands_no_kv_over",
            engine=facts.name,
            effect="it serves whole requests",
            hint="start it with --disaggregation-mode prefill or decode, or leave `kv_transfer` out",
        )
        kv, role = "", facts.role
    else:
        kv, role = facts.kv_transfer, facts.role
    if kv != SGLANG:
        return Handing(kv, role)
    told = sane_int(server.get("disaggregation_bootstrap_port"))
    port = facts.bootstrap_port or (told if told and told < 2**16 else BOOTSTRAP_PORT)
    return Handing(kv, role, port, str(server.get("disaggregation_transfer_backend") or "")[:64])
