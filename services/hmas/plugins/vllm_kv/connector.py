"""vLLM's NIXL connector (pull), whose reads go in the order of the deadlines that came with their requests.

    --kv-transfer-config '{"kv_connector": "HmasNixlConnector", "kv_role": "kv_both",
                           "kv_connector_module_path": "hmas.plugins.vllm_kv.connector",
                           "kv_connector_extra_config": {"hmas_chunk_bytes": 1048576, "hmas_window": 2}}'

`kv_transfer_params` may have `hmas_due_ms`, the milliseconds from their arrival in which the first token is due.
Without `hmas_chunk_bytes` reads stay whole and go as stock NIXL has them: what chunks cost was measured over TCP alone.
"""

import time
from math import inf
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector import NixlPullConnector
from vllm.logger import init_logger

from hmas.plugins.vllm_kv.gate import Gate, GatedAgent

log = init_logger("vllm.hmas")
WINDOW = 2  # chunks on their way, so that the link is never idle between two


class HmasNixlConnector(NixlPullConnector):
    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        extra = vllm_config.kv_transfer_config.get_from_extra_config
        self._chunk_bytes, self._window = int(extra("hmas_chunk_bytes", 0)), int(extra("hmas_window", WINDOW))
        self._due_s: dict[str, float] = {}  # by the name of a request at the engine that computed its prompt

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        """Of the scheduler: the deadlines travel to the worker with the step's metadata."""
        told = (request.kv_transfer_params or {} for request, *_ in self.connector_scheduler._reqs_need_recv.values())
        due_ms = {
            params["remote_request_id"]: params["hmas_due_ms"]
            for params in told
            if params.get("remote_request_id") and isinstance(params.get("hmas_due_ms"), int | float)
        }
        metadata = super().build_connector_meta(scheduler_output)
        metadata.hmas_due_ms = due_ms
        return metadata

    def register_kv_caches(self, kv_caches: Any) -> None:
        super().register_kv_caches(kv_caches)
        if self._chunk_bytes <= 0:
            return
        worker = self.connector_worker
        size = int(worker.block_len_per_layer[0])
        descriptors = max(1, self._chunk_bytes // size)
        worker.nixl_wrapper = GatedAgent(
            worker.nixl_wrapper, Gate(worker.nixl_wrapper, self._window), descriptors, size, self._due
        )
        log.info("reads by deadline, in chunks of %d descriptors of %d bytes", descriptors, size)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        now_s = time.monotonic()
        for name, due_ms in getattr(self._connector_metadata, "hmas_due_ms", {}).items():
            self._due_s[name] = now_s + due_ms / 1000.0
        super().start_load_kv(forward_context, **kwargs)

    def _due(self, notification: bytes) -> float:
        return self._due_s.pop(notification.rsplit(b":", 1)[0].decode(), inf)
