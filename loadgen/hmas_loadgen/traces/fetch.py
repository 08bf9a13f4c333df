"""Downloads a public trace. A broken download is resumed by HTTP Range, and the file gets its final name only after its
checksum was verified."""

import hashlib
import os
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from hmas_loadgen.traces.registry import PublicTrace

CHUNK_BYTES = 1 << 18
MAX_BYTES = 8 * 2**30
IDLE_TIMEOUT_S = 60.0
OnBytes = Callable[[int, int | None], None]  # bytes so far, total if known


class FetchError(OSError):
    """Raised if a trace could not be downloaded or its checksum is wrong. The message says what to do."""


def fetch(trace: PublicTrace, folder: Path, on_bytes: OnBytes | None = None) -> Path:
    """Returns the path of the trace's file in `folder`, and downloads it if it is not there. Raises FetchError if the
    download fails or the checksum is wrong.

    The part that a broken download left (`NAME.part`) is continued if the server supports it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / trace.file_name
    if path.exists():
        _verify(trace, path, path)
        return path
    part = path.with_name(path.name + ".part")
    try:
        _download(trace.url, part, on_bytes)
    except FetchError:
        raise
    except (OSError, HTTPException) as error:
        kept = part.stat().st_size if part.exists() else 0
        raise FetchError(
            f"{trace.url} failed: {error}. {kept} bytes are kept; run the command again to continue"
        ) from None
    _verify(trace, part, path)
    os.replace(part, path)
    return path


def _download(url: str, part: Path, on_bytes: OnBytes | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        response: HTTPResponse = urlopen(request, timeout=IDLE_TIMEOUT_S)
    except HTTPError as error:
        if error.code == 416 and have:  # the range is empty: the file is complete
            return
        raise FetchError(
            f"{url} answers HTTP {error.code}. Download the file by other means and give its path"
        ) from None
    with response:
        if response.status != 206:
            have = 0  # the server ignores Range and sends the file from its start
        length = response.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if have else "wb") as file:
            while chunk := response.read(CHUNK_BYTES):
                file.write(chunk)
                have += len(chunk)
                if have > MAX_BYTES:
                    raise FetchError(
                        f"{url} is longer than {MAX_BYTES >> 30} GiB, so it is not the trace. Delete {part}"
                    )
                if on_bytes is not None:
                    on_bytes(have, total)
    if total is not None and have < total:
        raise HTTPException(f"the connection closed {total - have} bytes early")


def checksum(path: Path, kind: str) -> str:
    """Returns a checksum of the file in hex: its SHA-256 for `kind` "sha256", its git blob id for "git"."""
    digest = hashlib.sha256()
    if kind == "git":
        digest = hashlib.sha1(f"blob {path.stat().st_size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _verify(trace: PublicTrace, path: Path, final: Path) -> None:
    """Raises FetchError if the file's checksum is wrong. Without a published checksum, the one of the first download is
    kept beside the file and compared with later ones."""
    note = final.with_name(final.name + ".sha256")
    expected = trace.checksum
    if expected is None and note.exists():
        expected = f"sha256:{note.read_text().split()[0]}"
    if expected is None:
        note.write_text(f"{checksum(path, 'sha256')}  {final.name}\n")
        return
    kind, _, wanted = expected.partition(":")
    found = checksum(path, kind)
    if found != wanted:
        raise FetchError(
            f"{path}: the {kind} checksum is {found} instead of {wanted}. Delete the file and fetch it again"
        )
