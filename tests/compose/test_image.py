"""The image: what is in it, that the same sources make the same files, and the whole mesh in one container of it."""

import hashlib
import json
import re
import subprocess
import tarfile
import time

import httpx
import pytest

from docs.version import project_version
from tests.compose.docker import ROOT, docker
from tests.package.commands import COMMANDS

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]
BILL = "/opt/hmas/sbom.cdx.json"
START_S = 120.0
INSTALLED = "from importlib.metadata import distributions as d; print(*(f'{x.name}=={x.version}' for x in d()))"
# What Docker puts into a container by itself.
MOUNTED = {".dockerenv", "dev/console", "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf"}


def canonical(requirement: str) -> tuple[str, str]:
    """A package's name, as the index writes it, and its version."""
    name, _, version = requirement.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower(), version


def locked() -> set[tuple[str, str]]:
    return {canonical(line) for line in re.findall(r"^[\w.-]+==[^\s;]+", (ROOT / "locks/image.txt").read_text(), re.M)}


def test_the_bill_of_materials_names_every_locked_package(image: str) -> None:
    bill = json.loads(docker("run", "--rm", image, "cat", BILL))
    named = {canonical(f"{part['name']}=={part['version']}") for part in bill["components"]}
    assert named == locked()
    assert all(part["externalReferences"][0]["hashes"] for part in bill["components"])
    root = bill["metadata"]["component"]
    assert {canonical(f"{root['name']}=={root['version']}")} | named == {
        canonical(each) for each in docker("run", "--rm", image, "python", "-c", INSTALLED).split()
    }


def test_the_same_bill_is_made_without_an_image(image: str) -> None:
    make = ["make", "--assume-old=.venv/.installed", "sbom"]  # what is installed stays as it is
    subprocess.run(make, cwd=ROOT, check=True, capture_output=True, timeout=300)
    assert (ROOT / "out" / "sbom.cdx.json").read_text() == docker("run", "--rm", image, "cat", BILL)


def files(image: str) -> dict[str, tuple[object, ...]]:
    """By path: kind, mode, owner and content of every file."""
    container = docker("create", image).strip()
    found: dict[str, tuple[object, ...]] = {}
    export = subprocess.Popen(["docker", "export", container], stdout=subprocess.PIPE)
    assert export.stdout is not None
    with export, tarfile.open(fileobj=export.stdout, mode="r|") as archive:
        for entry in archive:
            file = archive.extractfile(entry) if entry.isreg() else None
            content = hashlib.sha256(file.read()).hexdigest() if file else entry.linkname
            found[entry.name] = (entry.type, entry.mode, entry.uid, entry.gid, content)
    docker("rm", container)
    return {path: facts for path, facts in found.items() if path not in MOUNTED}


def test_the_image_shows_its_version_and_holds_that_package(image: str) -> None:
    label = '{{index .Config.Labels "org.opencontainers.image.version"}}'
    assert docker("inspect", "--format", label, image).strip() == project_version()
    assert docker("run", "--rm", image, "--version").strip() == project_version()


@pytest.mark.long
def test_two_builds_hold_the_same_files(image: str) -> None:
    again = f"{image}-again"
    build = ["docker", "build", "--no-cache", "-q", "-f", "deploy/Dockerfile", "-t", again, "."]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=1200)
    one, other = files(image), files(again)
    docker("rmi", again)
    assert len(one) > 10_000
    assert {path for path in one.keys() | other.keys() if one.get(path) != other.get(path)} == set()


def test_no_command_is_a_program_of_the_image(image: str) -> None:
    """The entry point takes a program as it is, and everything else as what `hmas` shall do."""
    words = sorted({command.split()[0] for command in COMMANDS})
    found = docker("run", "--rm", image, "sh", "-c", f"for c in {' '.join(words)}; do which $c || true; done")
    assert found.split() == []
    assert "Usage: hmas" in docker("run", "--rm", image)


def test_the_whole_mesh_in_one_container(image: str) -> None:
    container = docker("run", "-d", "-p", "127.0.0.1::8000", image, "up").strip()
    try:
        url = f"http://{docker('port', container, '8000').split()[0]}"
        deadline_s = time.monotonic() + START_S
        while docker("inspect", "--format", "{{.State.Health.Status}}", container).strip() != "healthy":
            assert time.monotonic() < deadline_s, docker("logs", container)
            time.sleep(0.5)
        ask = {"model": "emulated", "prompt": "Hello", "max_tokens": 5}
        answer = httpx.post(f"{url}/v1/completions", json=ask, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] == 5
        assert "10001" in docker("exec", container, "id", "-u")
        assert "emulated" in docker("exec", container, "hmas", "top", "--once", "3")
        docker("stop", "--time", "60", container)
        assert docker("inspect", "--format", "{{.State.ExitCode}}", container).strip() == "0"
    finally:
        docker("rm", "-f", "-v", container)
