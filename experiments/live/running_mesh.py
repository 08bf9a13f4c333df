"""An emulated mesh of `hmas up` for a study in real time: the commands that it is given, and the traffic it gets."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hmas.mesh.state import read_state

HMAS = str(Path(sys.executable).parent / "hmas")
START_S = 120.0
HEAR_S = 8.0  # until `hmas whatif` has started and heard the pool, from when on it counts back
ABSTAINS = 3  # exit status of a what-if


def emptied(data_dir: Path) -> Path:
    """Makes a folder, and removes what lay there."""
    shutil.rmtree(data_dir, ignore_errors=True)
    data_dir.mkdir(parents=True)
    return data_dir


@contextmanager
def running_mesh(data_dir: Path, *options: str) -> Iterator[None]:
    """Starts `hmas up` on free ports under `data_dir`. Raises RuntimeError if it does not start."""
    command = [HMAS, "up", "--port", "0", "--replay", "--no-console", "--data-dir", str(data_dir), *options]
    with (data_dir / "up.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until_s = time.monotonic() + START_S
            while not (data_dir / "mesh.json").exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError(f"the mesh did not start: see {data_dir / 'up.log'}")
                time.sleep(0.1)
            yield
        finally:
            process.send_signal(signal.SIGINT)


def ordered(data_dir: Path, *args: str) -> str:
    """Gives the mesh a command, and returns what it printed. Raises RuntimeError if it fails."""
    command = [HMAS, *args, "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, ABSTAINS):
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return done.stdout


@contextmanager
def offered(data_dir: Path, out: Path, kind: str, rate: float, seed: int, seconds: int) -> Iterator[None]:
    """Offers traffic beside the block, and waits for its last answer. Raises RuntimeError if it was not offered."""
    command = [HMAS, "load", "run", kind, "--url", read_state(data_dir).gateway_url, "--replay-field", "--send-slo",
               "--duration", str(seconds), "--rate", f"{rate:g}", "--seed", str(seed), "--out", str(out)]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield
        process.wait()  # its status says whether it kept its own pace
    if not out.exists():
        raise RuntimeError(f"the load was not offered: {' '.join(command[1:])}")
