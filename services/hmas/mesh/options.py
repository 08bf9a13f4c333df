"""The options of `hmas up`."""

from dataclasses import dataclass, field
from pathlib import Path

from hmas.mesh.state import DEFAULT_DATA_DIR


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """The options of an embedded mesh. Without `engine_urls`, `emulated` emulated engines are started.

    `replay` accepts the load generator's `hmas_replay` field, which fixes output lengths; a mesh that serves real
    clients must leave it off.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model: str = ""
    aliases: tuple[str, ...] = ()
    engine_urls: tuple[str, ...] = ()
    engine_api_key_file: Path | None = None
    max_num_seqs: int | None = None  # of the engines in `engine_urls`; vLLM does not report it
    hardware: str = ""
    profile: str = "tiny-emulated"
    emulated: int = 2
    workers: int = 0  # 0: one per engine
    nats_url: str | None = None  # of an external server; None: an embedded one is started
    nats_port: int = 0  # of the embedded server; 0: any free port, so that two meshes do not share a server
    tenants: Path | None = None
    llm_url: str | None = None
    llm_model: str = ""
    llm_api_key_file: Path | None = None
    data_dir: Path = DEFAULT_DATA_DIR
    log_level: str = "info"
    replay: bool = False
    extra_env: dict[str, str] = field(default_factory=dict)

    @property
    def pool(self) -> str:
        return self.model or "emulated"
