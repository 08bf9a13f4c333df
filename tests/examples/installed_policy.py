"""The template of a policy, built and installed as a user would, into a folder of its own."""

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "policy"
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def install_policy(folder: Path) -> Path:
    """Returns a folder with the package in it, for PYTHONPATH."""
    built, site = folder / "built", folder / "site"
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(built)]
    subprocess.run(build, cwd=EXAMPLE, check=True, capture_output=True)
    (wheel,) = built.glob("*.whl")
    subprocess.run(
        [*PIP, "install", "--no-deps", "--no-index", "--target", site, wheel], check=True, capture_output=True
    )
    return site


def add_topology(site: Path, name: str, source: str) -> None:
    """Puts another package there, whose module `name` has the maker `make` of the topology `name`."""
    info = site / f"{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[hmas.topologies]\n{name} = {name}:make\n")
    (site / f"{name}.py").write_text(source)
