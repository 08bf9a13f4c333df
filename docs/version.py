"""Writes the version, which `pyproject.toml` alone holds, where a chart and an image can show no other one."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Each has one group: what is replaced by the version.
PLACES = {
    "deploy/helm/hmas/Chart.yaml": (r"^version: (\S*)$", r'^appVersion: "(.*)"$'),
    "deploy/Dockerfile": (r'org\.opencontainers\.image\.version="(.*?)"',),
}


def project_version(root: Path = ROOT) -> str:
    told: str = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    return told


def stamped(place: str, root: Path = ROOT) -> str:
    """Returns the text of a file of PLACES with the version. Raises ValueError if it does not show one just where it
    should."""
    text = (root / place).read_text(encoding="utf-8")
    for pattern in PLACES[place]:
        found = re.findall(pattern, text, re.MULTILINE)
        if len(found) != 1:
            raise ValueError(f"{place} must show the version once as {pattern}, and does so {len(found)} times")
        (at,) = re.finditer(pattern, text, re.MULTILINE)
        text = text[: at.start(1)] + project_version(root) + text[at.end(1) :]
    return text
