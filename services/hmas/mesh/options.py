"""What `hmas up` can be told."""

from dataclasses import dataclass, field
from pathlib import Path

from hmas.mesh.state import DEFAULT_DATA_DIR


@dataclass(frozen=True, slots=True)
class MeshOptions:
    """An embedded mesh. `engine_urls` empty: emulated engines are started, one worker each.

    `replay`: accept the load generator's `hmas_replay` field (never on a mesh that serves others).
    """

    host: str = "127.0.0.1"
    port: int = 8000
    model: str = ""
    aliases: tuple[str, ...] = ()
    engine_urls: tuple[str, ...] = ()
    engine_api_key_file: Path | None = None
    max_num_seqs: int | None = None  # of the given engines; vLLM does not tell
    hardware: str = ""
    profile: str = "tiny-emulated"
    emulated: int = 2
    workers: int = 0  # 0: one an engine
    nats_url: str | None = None  # an external server
    nats_port: int = 0  # of the embedded server; 0: any free one, so that two meshes never meet
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
