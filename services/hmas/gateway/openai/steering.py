"""The fields of a body by which a client would steer an engine, which a tenant must be allowed."""

from collections.abc import Mapping
from typing import Any

from hmas.gateway.errors import InvalidRequest

# Of vLLM and SGLang, and what they do there.
STEERING_FIELDS: Mapping[str, str] = {
    "kv_transfer_params": "it directs the transfer of KV caches between engines",
    "ec_transfer_params": "it directs the transfer of encoder caches between engines",
    "bootstrap_host": "it names the engine that KV caches are fetched from",
    "bootstrap_port": "it names the engine that KV caches are fetched from",
    "bootstrap_room": "it names the KV cache that is fetched",
    "routed_dp_rank": "it chooses the engine's data-parallel rank",
    "disagg_prefill_dp_rank": "it chooses the data-parallel rank of the prefill engine",
    "data_parallel_rank": "it chooses the engine's data-parallel rank",
    "data_parallel_rank_decode": "it chooses the data-parallel rank of the decoding engine",
    "cache_salt": "it separates or shares entries of the prefix cache",
    "extra_key": "it separates or shares entries of the prefix cache",
    "session_id": "it joins a session that other requests share",
    "session_params": "it continues or branches a session that other requests share",
    "lora_path": "it chooses an adapter, which is another model",
    "vllm_xargs": "it is passed to extensions of the engine",
    "custom_params": "it is passed to extensions of the engine",
    "custom_logit_processor": "it is code that the engine runs",
    "logits_processors": "it names code that the engine runs",
    "chat_template": "it is a template that the engine runs",
    "prompt_embeds": "it holds serialised tensors",
    "mm_processor_kwargs": "it configures how the engine reads media",
    "media_io_kwargs": "it configures how the engine reads media",
    "ngram_corpus_id": "it chooses the corpus that the engine speculates with",
    "custom_labels": "it makes new series in the engine's metrics",
    "return_hidden_states": "it slows the engine for everyone",
}


def check_steering(body: dict[str, Any], allowed: frozenset[str]) -> None:
    """Raises InvalidRequest if a body steers an engine by a field that is not `allowed`."""
    for name in STEERING_FIELDS.keys() & body.keys():
        if name not in allowed and body[name] is not None:
            message = (
                f"this tenant may not send `{name}`, because {STEERING_FIELDS[name]}: leave it out, or ask the "
                "operator to allow it (`allowed_body_fields` in the tenants file)"
            )
            raise InvalidRequest(message, name)
