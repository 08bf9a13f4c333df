"""Which version this installation has, and by which command an extra is added to it.

No command names the distribution `hmas`: on a package index that may be somebody else's.
"""

import json
import re
import shlex
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

NAME = "hmas"
_OWN = re.compile(rf"{NAME}\[([^\]]*)\]")


def package_version() -> str:
    """Returns the version of the installed package, `0+unknown` where its files alone are there."""
    try:
        return version(NAME)
    except PackageNotFoundError:
        return "0+unknown"


def install_command(extra: str) -> str:
    """Returns a shell command that installs the packages of an extra where this process runs: from the clone or the
    wheel that this installation came from while it is there, otherwise by their own names."""
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        return f"in a clone of it, pip install {shlex.quote(f'.[{extra}]')}"
    wanted = _from_source(installed, extra) or " ".join(map(shlex.quote, packages_of(installed, extra)))
    return f"{_installer()} {wanted}"


def packages_of(installed: Distribution, extra: str) -> list[str]:
    """Returns the requirements that an extra adds, without their conditions."""
    found: dict[str, None] = {}
    for line in installed.requires or ():
        requirement, _, condition = (part.strip() for part in line.partition(";"))
        if re.search(rf"extra == ['\"]{re.escape(extra)}['\"]", condition):
            own = _OWN.match(requirement)
            more = [requirement] if own is None else [p for e in own[1].split(",") for p in packages_of(installed, e)]
            found |= dict.fromkeys(more)
    return list(found)


def _from_source(installed: Distribution, extra: str) -> str:
    """Returns what to install from the folder or file that `installed` came from; empty if it is not there."""
    told = json.loads(installed.read_text("direct_url.json") or "{}")
    url = urlsplit(told.get("url", ""))
    path = url2pathname(url.path)
    if url.scheme != "file" or not Path(path).exists():
        return ""
    editable = "-e " if told.get("dir_info", {}).get("editable") else ""
    return editable + shlex.quote(f"{path}[{extra}]")


def _installer() -> str:
    python = shlex.quote(sys.executable)
    return f"{python} -m pip install" if find_spec("pip") is not None else f"uv pip install --python {python}"
