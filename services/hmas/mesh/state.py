"""The file `<data dir>/mesh.json`, by which commands find a running embedded mesh."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.request import Request

from hmas.mesh.data_folder import claim, read_own

DEFAULT_DATA_DIR = Path(".hmas")


class NoMesh(Exception):
    """No embedded mesh runs in the data directory, or its state file cannot be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshState:
    """The URLs of a running mesh.

    `nats_password_file` is "" if the NATS server is an external one; the file `ops_token_file` holds what the /metrics
    of the services ask for. `console_url` is "" without a console. `profile` is that of emulated engines, "" for
    others. `plan_folder` has the plan that its engines follow, "" if they follow none, and `plan_cards` are those that
    it may use, such as 16xh100. `pids` are by process name and as of the mesh's start; restarts change them.
    """

    gateway_url: str
    nats_url: str
    nats_password_file: str
    ops_token_file: str
    pool: str
    engine_urls: tuple[str, ...]
    ops_urls: dict[str, str]
    pids: dict[str, int]
    console_url: str = ""
    profile: str = ""
    plan_folder: str = ""
    plan_cards: str = ""

    def ops_request(self, url: str) -> Request:
        """Returns a request for a page on the ops port of one of the mesh's services. Raises OSError if the file with
        the token cannot be read."""
        token = Path(self.ops_token_file).read_text().strip()
        return Request(url, headers={"authorization": f"Bearer {token}"})

    def write(self, data_dir: Path) -> None:
        path = data_dir / "mesh.json"
        scratch = path.with_suffix(".tmp")
        scratch.write_text(json.dumps(asdict(self), indent=2) + "\n")
        scratch.replace(path)


def read_state(data_dir: Path) -> MeshState:
    """Returns the state of the mesh that runs in `data_dir`. Raises NoMesh, whose message says what to do."""
    path = data_dir / "mesh.json"
    try:
        fields = json.loads(read_own(path))
        fields["engine_urls"] = tuple(fields["engine_urls"])
        return MeshState(**fields)
    except FileNotFoundError:
        raise NoMesh(f"no mesh runs here ({path} is missing): start one with `hmas up`, or give --nats-url") from None
    except (ValueError, TypeError, KeyError) as error:
        raise NoMesh(
            f"{path} cannot be read ({error}): stop the mesh, delete the file and start it again, or give --data-dir"
        ) from error


def forget_state(data_dir: Path) -> None:
    (data_dir / "mesh.json").unlink(missing_ok=True)


@contextmanager
def sole_owner(data_dir: Path) -> Iterator[None]:
    """Locks the data directory, so that two meshes never write the same files. Raises ValueError if one runs there, or
    if it is another user's.

    The kernel releases the lock when the process ends, however it ends.
    """
    claim(data_dir)
    with (data_dir / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"a mesh already runs in {data_dir}: stop it, or give --data-dir another folder") from None
        yield
