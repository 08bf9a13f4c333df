"""Where a running embedded mesh can be found: `<data dir>/mesh.json`."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

DEFAULT_DATA_DIR = Path(".hmas")


class NoMesh(Exception):
    """No embedded mesh is known under the data directory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """URLs of a running mesh. `nats_password_file` is empty where the NATS server is not its own. `pids` by process
    name, as of its start."""

    gateway_url: str
    nats_url: str
    nats_password_file: str
    pool: str
    engine_urls: tuple[str, ...]
    ops_urls: dict[str, str]
    pids: dict[str, int]

    def write(self, data_dir: Path) -> None:
        path = data_dir / "mesh.json"
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")
        scratch.replace(path)


def read_state(data_dir: Path) -> MeshState:
    """Raises NoMesh, saying what to do."""
    path = data_dir / "mesh.json"
    try:
        fields = json.loads(path.read_text())
        fields["engine_urls"] = tuple(fields["engine_urls"])
        return MeshState(**fields)
    except FileNotFoundError:
        raise NoMesh(f"no mesh runs here ({path} is missing): start one with `hmas up`, or give --nats-url") from None
    except (ValueError, TypeError, KeyError) as error:
        raise NoMesh(f"{path} cannot be read ({error}): stop the mesh, delete the file and start it again") from error


def forget_state(data_dir: Path) -> None:
    (data_dir / "mesh.json").unlink(missing_ok=True)


@contextmanager
def sole_owner(data_dir: Path) -> Iterator[None]:
    """Keeps a second mesh out of the data directory, whose files two would spoil. Raises ValueError that says what to
    do. The kernel lets go of it when the process dies, however it does."""
    data_dir.mkdir(parents=True, exist_ok=True)
    with (data_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"a mesh runs in {data_dir} already: stop it, or give --data-dir another folder") from None
        yield
