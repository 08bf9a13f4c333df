"""`python -m deploy.release`: wheel, chart, bill of materials, site and image of a commit, in the folder out/release.

All dates are the commit's (`SOURCE_DATE_EPOCH`), so that the same commit gives the same bytes each time and everywhere.
Of the image only the files inside are the same. Where no Docker engine runs, the image is left out, and the output says
so.
"""

import argparse
import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from docs.version import project_version

ROOT = Path(__file__).resolve().parents[1]
CHART = "deploy/helm/hmas"


def commit_time_s(root: Path = ROOT) -> int:
    """Returns the date of everything in a release, in seconds since 1970: `SOURCE_DATE_EPOCH`, or else the commit's."""
    if told := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(told)
    return int(subprocess.check_output(["git", "log", "-1", "--format=%ct"], cwd=root, text=True))


def run(command: list[str], root: Path, epoch_s: int) -> None:
    env = os.environ | {"SOURCE_DATE_EPOCH": str(epoch_s), "NO_MKDOCS_2_WARNING": "1", "TZ": "UTC"}
    subprocess.run(command, cwd=root, env=env, check=True, stdout=subprocess.DEVNULL)


def wheel(root: Path, out: Path, epoch_s: int) -> None:
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)], root, epoch_s)


def files_of(folder: Path) -> list[Path]:
    """Returns the files below a folder, in order; those of linked folders, such as the chart's dashboards, too."""
    return sorted(Path(at) / name for at, _, names in os.walk(folder, followlinks=True) for name in names)


def chart(root: Path, out: Path, epoch_s: int) -> None:
    """Packs the chart. `helm package` writes the minute at which it ran into the archive."""
    folder, packed = root / CHART, io.BytesIO()
    files = files_of(folder)
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(files, key=lambda path: path != folder / "Chart.yaml"):
            entry = tarfile.TarInfo(str(Path("hmas") / path.relative_to(folder)))
            entry.mtime, entry.mode, entry.size = epoch_s, 0o644, path.stat().st_size
            with path.open("rb") as content:
                archive.addfile(entry, content)
    named = out / f"hmas-{project_version(root)}.tgz"
    named.write_bytes(gzip.compress(packed.getvalue(), mtime=epoch_s))


def sbom(root: Path, out: Path, epoch_s: int) -> None:
    """Writes the image's packages with their hashes, as CycloneDX; the image holds the same file."""
    program = str(Path(sys.executable).with_name("cyclonedx-py"))
    command = [program, "requirements", "--output-reproducible", "--pyproject", "pyproject.toml"]
    env = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}  # it holds no date at all
    subprocess.run(
        [*command, "--output-file", str(out / "sbom.cdx.json"), "locks/image.txt"], cwd=root, env=env, check=True
    )


def site(root: Path, out: Path, epoch_s: int) -> None:
    """Builds the site into a folder named after the version. The folders of several releases may stand beside one
    another on a web server; `versions.json` names those that are here, and the site offers them."""
    sites, version = out / "site", project_version(root)
    run([sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(sites / version)], root, epoch_s)
    known = sorted((path.name for path in sites.iterdir() if path.is_dir()), key=_numbers, reverse=True)
    listed = [{"version": name, "title": name, "aliases": []} for name in known]
    (sites / "versions.json").write_text(json.dumps(listed, indent=1) + "\n")
    (sites / "index.html").write_text(f'<meta http-equiv="refresh" content="0; url={known[0]}/index.html">\n')


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def image(root: Path, out: Path, epoch_s: int) -> None:
    name = f"hmas:{project_version(root)}"
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        print(f"no Docker engine runs here: {name} is left out of this release", file=sys.stderr)
        return
    dated = ["--build-arg", f"SOURCE_DATE_EPOCH={epoch_s}"]
    run(["docker", "build", "--quiet", *dated, "-f", "deploy/Dockerfile", "-t", name, "."], root, epoch_s)
    run(["docker", "save", "--output", str(out / f"{name.replace(':', '-')}-image.tar"), name], root, epoch_s)


PARTS: dict[str, Callable[[Path, Path, int], None]] = {
    "wheel": wheel, "chart": chart, "sbom": sbom, "site": site, "image": image,
}  # fmt: skip


def sums(out: Path) -> str:
    """Returns one line for each file below a folder, as `sha256sum --check` reads it."""
    files = (path for path in files_of(out) if path.name != "SHA256SUMS")
    return "".join(f"{sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out)}\n" for path in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=f"of {', '.join(PARTS)}; default: all")
    parser.add_argument("--out", type=Path, default=ROOT / "out/release")
    args = parser.parse_args()
    if unknown := set(args.parts) - set(PARTS):
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(PARTS)}")
    out: Path = args.out.absolute()
    whole = args.parts == list(PARTS)
    if whole:
        shutil.rmtree(out, ignore_errors=True)
        if subprocess.check_output(["git", "status", "--porcelain"], cwd=ROOT):
            print("some files differ from the commit whose date this release gets: commit them first", file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    epoch_s = commit_time_s()
    for name in args.parts:
        PARTS[name](ROOT, out, epoch_s)
    if whole:
        (out / "SHA256SUMS").write_text(sums(out))
        print(f"{out}: {', '.join(sorted(path.name for path in out.iterdir()))}")


if __name__ == "__main__":
    main()
