"""The venv in which a real SGLang server runs on a CPU: made once, beside the venv of vLLM, whose packages it shares.

This is nobody's official environment. SGLang is published for GPUs; here it runs with `--device cpu`, PyTorch's own
attention and sampling, an older PyTorch than it asks for (2.13 for 2.14) and stand-ins for its kernels, Triton and
torchvision (`sglang_standins`). Its scheduler, its KV cache's bookkeeping, its metrics and its HTTP server are the real
ones; its speed says nothing, and neither does anything that its kernels compute on a GPU.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.engines import environment
from tests.engines.environment import HERE, EngineEnvironment, Unavailable, alone, done, mark, remake, run

REQUIREMENTS = HERE / "sglang_requirements.txt"
STAND_INS = HERE / "sglang_standins"


@dataclass(frozen=True, slots=True)
class SglangEnvironment:
    """A ready venv, and the tiny model that vLLM serves too."""

    shared: EngineEnvironment

    @property
    def venv(self) -> Path:
        return self.shared.folder / "sglang"

    @property
    def python(self) -> Path:
        return self.venv / "bin" / "python"

    @property
    def model(self) -> Path:
        return self.shared.model

    def env(self) -> dict[str, str]:
        """What SGLang needs to run on a CPU, small and quiet."""
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR")}
        return keep | {
            "PYTHONPATH": str(STAND_INS),
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }


def ready() -> SglangEnvironment:
    """The environment, made if it is not there yet. Raises Unavailable."""
    made = SglangEnvironment(environment.ready())
    with alone(made.shared.folder):
        if not done(made.venv, REQUIREMENTS.read_text()):
            _make_venv(made)
    return made


def _make_venv(made: SglangEnvironment) -> None:
    print(f"installing SGLang into {made.venv} (0.2 GB, a minute, once) ...", flush=True)
    remake(made.venv)
    run([sys.executable, "-m", "venv", "--without-pip", str(made.venv)])
    (shared,) = (made.shared.folder / "venv" / "lib").glob("python3.*/site-packages")
    (packages,) = (made.venv / "lib").glob("python3.*/site-packages")
    (packages / "shared.pth").write_text(f"{shared}\n")  # comes after its own packages
    pip = [str(made.shared.python), "-m", "pip", "--python", str(made.python), "--quiet", "--disable-pip-version-check"]
    run([*pip, "install", "--no-deps", "-r", str(REQUIREMENTS)])
    mark(made.venv, REQUIREMENTS.read_text())


if __name__ == "__main__":
    try:
        print(ready().venv)
    except Unavailable as error:
        print(f"real SGLang cannot be had here: {error}")
        sys.exit(3)
