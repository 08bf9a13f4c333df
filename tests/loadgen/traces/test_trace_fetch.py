"""Downloads against a local HTTP server: whole, resumed, broken off, wrong hash, missing."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hmas_loadgen.traces.fetch import FetchError, checksum, fetch
from hmas_loadgen.traces.registry import PUBLIC_TRACES, PublicTrace

CONTENT = bytes(range(256)) * 1000


class Mirror(ThreadingHTTPServer):
    """Serves CONTENT; `break_after` closes the connection early, `ranges` off ignores Range."""

    break_after: int | None = None
    ranges = True
    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/trace.csv"


class Handler(BaseHTTPRequestHandler):
    server: Mirror

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.server.ranges else 0
        if self.server.status != 200 or start >= len(CONTENT):
            self.send_error(416 if self.server.status == 200 else self.server.status)
            return
        body = CONTENT[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: self.server.break_after])

    def log_message(self, format: str, *args: object) -> None: ...


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    server = Mirror()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def trace(mirror: Mirror, digest: str | None = None) -> PublicTrace:
    return PublicTrace(
        name="t",
        url=mirror.url,
        checksum=digest or f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
        licence="MIT",
        about="",
    )


def test_whole_and_then_not_again(mirror: Mirror, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    path = fetch(trace(mirror), tmp_path, lambda done, total: seen.append((done, total)))
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert fetch(trace(mirror), tmp_path) == path
    assert mirror.asked == [None]


def test_a_broken_download_is_continued_by_range(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_after = 100_000
    with pytest.raises(FetchError, match="100000 bytes are kept; run the command again to continue"):
        fetch(trace(mirror), tmp_path)
    assert not (tmp_path / "trace.csv").exists()
    mirror.break_after = None
    assert fetch(trace(mirror), tmp_path).read_bytes() == CONTENT
    assert mirror.asked == [None, "bytes=100000-"]


def test_a_server_without_ranges_starts_over(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "trace.csv.part").write_bytes(b"something else")
    mirror.ranges = False
    assert fetch(trace(mirror), tmp_path).read_bytes() == CONTENT


def test_a_whole_part_file_needs_no_more_bytes(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "trace.csv.part").write_bytes(CONTENT)
    assert fetch(trace(mirror), tmp_path).read_bytes() == CONTENT


def test_a_wrong_hash_keeps_the_name_free(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="Delete the file and fetch it again"):
        fetch(trace(mirror, "sha256:" + "0" * 64), tmp_path)
    assert not (tmp_path / "trace.csv").exists()


def test_without_a_published_hash_the_first_download_sets_it(mirror: Mirror, tmp_path: Path) -> None:
    unknown = PublicTrace(name="t", url=mirror.url, checksum=None, licence="MIT", about="")
    path = fetch(unknown, tmp_path)
    assert (tmp_path / "trace.csv.sha256").read_text().split()[0] == hashlib.sha256(CONTENT).hexdigest()
    path.write_bytes(b"changed")
    with pytest.raises(FetchError, match="instead of"):
        fetch(unknown, tmp_path)


def test_http_errors_and_no_server(mirror: Mirror, tmp_path: Path) -> None:
    mirror.status = 404
    with pytest.raises(FetchError, match="HTTP 404"):
        fetch(trace(mirror), tmp_path)
    gone = PublicTrace(name="t", url="http://127.0.0.1:1/trace.csv", checksum=None, licence="MIT", about="")
    with pytest.raises(FetchError, match="0 bytes are kept"):
        fetch(gone, tmp_path)


def test_git_blob_ids(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"hello\n")
    assert checksum(tmp_path / "x", "git") == "ce013625030ba8dba906f756967f9e9ca394464a"


def test_the_registry_is_pinned() -> None:
    assert all(t.url.startswith("https://") and t.name == name for name, t in PUBLIC_TRACES.items())
    unpinned = [name for name, t in PUBLIC_TRACES.items() if t.checksum is None]
    assert unpinned == ["azure-2024-code"]
