"""Whose the data folder is. What another user put there, such as a link, would decide which files are written, and to
whom a password is shown."""

import os
from pathlib import Path

ADVICE = "give --data-dir a folder of your own"


def claim(folder: Path) -> None:
    """Makes the data folder if it is missing, and takes it for this user alone. Raises as `make_own` does."""
    make_own(folder)
    folder.chmod(0o700)
    make_own(folder)  # from here on nobody else can put anything there


def make_own(folder: Path) -> None:
    """Makes the data folder if it is missing. Raises ValueError if it or something in it belongs to another user, and
    OSError if it cannot be made."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if {folder.lstat().st_uid, folder.stat().st_uid} != {os.geteuid()}:
        raise ValueError(f"the data folder {folder} belongs to another user: {ADVICE}")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.stat(follow_symlinks=False).st_uid not in (os.geteuid(), 0):
                raise ValueError(f"{entry.path} belongs to another user: delete it, or {ADVICE}")


def read_own(path: Path) -> str:
    """Returns the text of a file in a data folder. Raises ValueError if another user wrote it, and OSError."""
    with path.open() as file:
        if os.fstat(file.fileno()).st_uid != os.geteuid():
            raise ValueError("it belongs to another user")
        return file.read()
