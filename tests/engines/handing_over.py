"""A real `vllm serve` that hands KV over by NIXL, on this host or in a network namespace behind a slow link."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hmas.mesh.ports import free_port
from tests.engines.environment import EngineEnvironment, Unavailable
from tests.engines.vllm_server import VllmServer

LEASE_S = 30  # a busy machine is slow to read
STOCK: dict[str, Any] = {
    "kv_connector": "NixlConnector", "kv_role": "kv_both", "kv_connector_extra_config": {"kv_lease_duration": LEASE_S},
}  # fmt: skip
PUSH: dict[str, Any] = STOCK | {
    "kv_connector": "NixlPushConnector",
    "kv_connector_extra_config": {"kv_lease_duration": LEASE_S, "push_registration_timeout": LEASE_S},
}  # fmt: skip
# 1 MiB chunks, two of them on their way.
BY_DEADLINE: dict[str, Any] = STOCK | {
    "kv_connector": "HmasNixlConnector", "kv_connector_module_path": "hmas.plugins.vllm_kv.connector",
    "kv_connector_extra_config": {"kv_lease_duration": LEASE_S, "hmas_chunk_bytes": 2**20},
}  # fmt: skip
NAMESPACE, NEAR_END, FAR_END = "hmas-far", "hmas-near0", "hmas-far0"
NEAR, FAR = "10.77.0.1", "10.77.0.2"


class HandingOver(VllmServer):
    """With its own scheduler, and a connector. `host` NEAR or FAR: on that end of the link, where KV goes over it."""

    def __init__(
        self, environment: EngineEnvironment, folder: Path, *flags: str, connector: dict[str, Any] = STOCK,
        host: str = "127.0.0.1", model: Path | None = None,
    ) -> None:  # fmt: skip
        flags = (*flags, "--kv-transfer-config", json.dumps(connector), "--host", host)
        super().__init__(environment, folder, *flags, scheduler="", model=model)
        self.url, self._far = f"http://{host}:{self.port}", host == FAR
        device = {NEAR: NEAR_END, FAR: FAR_END}.get(host, "lo")
        side = {"VLLM_NIXL_SIDE_CHANNEL_HOST": host, "VLLM_NIXL_SIDE_CHANNEL_PORT": str(free_port())}
        self._nixl = environment.nixl_env() | side | {"UCX_NET_DEVICES": device}

    def env(self) -> dict[str, str]:
        return self._nixl

    def command(self) -> list[str]:
        inside = ["ip", "netns", "exec", NAMESPACE] if self._far else []
        return inside + super().command()

    def prompt_tokens(self, source: str) -> float:
        return sum(self.values("vllm:prompt_tokens_by_source_total", f'source="{source}"'))

    @property
    def is_empty(self) -> bool:
        return self.metric("vllm:kv_cache_usage_perc") == 0.0


@contextmanager
def slow_link(mbit: int) -> Iterator[None]:
    """A network namespace that is reached over a link of so many Mbit/s. Raises Unavailable where none can be made."""
    if os.geteuid() or not (shutil.which("ip") and shutil.which("tc")):
        raise Unavailable("network namespaces need root, `ip` and `tc`")
    inside = f"ip netns exec {NAMESPACE}"
    try:
        _take_down()
        for line in (
            f"ip netns add {NAMESPACE}",
            f"ip link add {NEAR_END} type veth peer name {FAR_END}",
            f"ip link set {FAR_END} netns {NAMESPACE}",
            f"ip addr add {NEAR}/24 dev {NEAR_END}",
            f"ip link set {NEAR_END} up",
            f"{inside} ip addr add {FAR}/24 dev {FAR_END}",
            f"{inside} ip link set {FAR_END} up",
            f"{inside} ip link set lo up",
            f"tc qdisc add dev {NEAR_END} root handle 1: htb default 1",
            f"tc class add dev {NEAR_END} parent 1: classid 1:1 htb rate {mbit}mbit quantum 20000",
        ):
            subprocess.run(line.split(), check=True, capture_output=True, text=True)
        yield
    except subprocess.CalledProcessError as error:
        raise Unavailable(f"{' '.join(error.cmd)}: {error.stderr.strip()}") from error
    finally:
        _take_down()


def _take_down() -> None:
    for line in (f"ip link del {NEAR_END}", f"ip netns del {NAMESPACE}"):
        with suppress(OSError):
            subprocess.run(line.split(), capture_output=True)
