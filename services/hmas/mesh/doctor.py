"""The checks of `hmas doctor`: each finds out whether something a mesh needs is there, and says what to do."""

import platform
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from rich.table import Table
from rich.text import Text

from hmas.installation import install_command
from hmas.mesh.data_folder import make_own
from hmas.mesh.nats_server import NatsBinaryMissing, find_nats_server
from hmas.mesh.ports import is_free
from hmas.mesh.state import NoMesh, read_state

Verdict = Literal["ok", "warn", "fail"]
STYLES: dict[Verdict, str] = {"ok": "green", "warn": "yellow", "fail": "red"}
TIMEOUT_S = 3.0
MIN_FREE_BYTES = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` says what to do if the verdict is not ok."""

    check: str
    verdict: Verdict
    detail: str
    advice: str = ""


def check_python() -> Finding:
    return Finding("Python", "ok", platform.python_version())


def check_nats_binary() -> Finding:
    try:
        return Finding("nats-server", "ok", str(find_nats_server()))
    except NatsBinaryMissing as error:
        return Finding("nats-server", "fail", "not found", str(error))


def check_extra(extra: str, package: str, instead: str) -> Finding:
    """Checks that an extra of the installation is present, by `package`, which it installs.

    `instead` says how to do without it.
    """
    if find_spec(package) is not None:
        return Finding(f"hmas[{extra}]", "ok", "installed")
    return Finding(f"hmas[{extra}]", "warn", "not installed", f"{install_command(extra)}, or {instead}")


def check_port(name: str, port: int, *, mesh_runs: bool) -> Finding:
    if is_free(port):
        return Finding(f"port {port} ({name})", "ok", "free")
    if mesh_runs:
        return Finding(f"port {port} ({name})", "ok", "in use by the running mesh")
    return Finding(
        f"port {port} ({name})",
        "fail",
        "in use",
        f"stop the process that listens there, or give `hmas up` another {name} port",
    )


def check_data_dir(data_dir: Path) -> Finding:
    try:
        make_own(data_dir)
        probe = data_dir / ".probe"
        probe.write_text("")
        probe.unlink()
    except (OSError, ValueError) as error:
        return Finding(
            "data directory", "fail", str(error), f"make {data_dir} writable, or choose another folder with --data-dir"
        )
    free = shutil.disk_usage(data_dir).free
    if free < MIN_FREE_BYTES:
        return Finding(
            "data directory",
            "warn",
            f"{free / 2**20:.0f} MiB free",
            "free some disk space: NATS JetStream stores its data there",
        )
    return Finding("data directory", "ok", f"{data_dir}, {free / 2**30:.0f} GiB free")


def check_http(name: str, url: str, path: str, advice: str) -> Finding:
    """Checks that an HTTP server answers `path`.

    The verdict is ok below status 400, warn from 400 to 499, and fail from 500 on or without an answer.
    """
    try:
        with urlopen(Request(url.rstrip("/") + path), timeout=TIMEOUT_S) as reply:
            return Finding(name, "ok", f"{url} answers {reply.status}")
    except HTTPError as error:
        verdict: Verdict = "warn" if error.code < 500 else "fail"
        return Finding(name, verdict, f"{url}{path} answers {error.code}", advice)
    except (URLError, OSError, ValueError) as error:
        return Finding(name, "fail", f"{url}: {getattr(error, 'reason', error)}", advice)
    except HTTPException as error:
        return Finding(name, "fail", f"{url} answers, but not in HTTP: {str(error)[:80]!r}", advice)


def check_tenants(path: Path, load: Callable[[Path], object]) -> Finding:
    """Checks that `load` accepts the tenants file; it raises ValueError or OSError with a reason if not."""
    try:
        load(path)
    except (ValueError, OSError) as error:
        return Finding("tenants file", "fail", str(error), f"correct {path}; keys are made by `hmas keys make`")
    return Finding("tenants file", "ok", str(path))


def check_mesh(data_dir: Path) -> list[Finding]:
    """Checks that every service of the running mesh is ready; without a mesh it returns one finding that says so."""
    try:
        state = read_state(data_dir)
    except NoMesh:
        return [Finding("mesh", "ok", "none runs here; start one with `hmas up`")]
    advice = "read the logs under the data directory, or start the mesh again with `hmas up`"
    findings = [check_http("gateway", state.gateway_url, "/ready", advice)]
    findings += [check_http(f"service {n}", url, "/ready", advice) for n, url in sorted(state.ops_urls.items())]
    return findings


def findings_table(doors: Mapping[str, Iterable[Finding]]) -> Table:
    """Returns a table of the findings, under the name of the door that each belongs to."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("check", no_wrap=True)
    table.add_column("")
    table.add_column("found, and what to do", overflow="fold")
    for door, findings in doors.items():
        table.add_row(Text(door, style="bold"))
        for f in findings:
            told = "\n".join(filter(None, (f.detail, f.advice)))
            table.add_row(Text(f"  {f.check}"), Text(f.verdict, style=STYLES[f.verdict]), Text(told))
    return table
