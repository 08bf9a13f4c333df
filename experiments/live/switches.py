"""Is `hmas whatif` right? In varied live runs of the emulated mesh it predicts a switch of topology, which is then made
under the same load: the share on time that came is compared with the predicted one.

`python -m experiments.live.switches --folder out/switches` goes on where it was stopped: each run is a file.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HMAS = str(Path(sys.executable).parent / "hmas")
LOAD_S = 120.0
TRUSTED = 0.05
START_S = 120.0


@dataclass(frozen=True, slots=True)
class Case:
    """A made workload, its mean rate in requests/s, its seed, the topology that serves it first and the next one."""

    workload: str
    rate: float
    seed: int
    before: str
    after: str

    @property
    def name(self) -> str:
        return f"{self.workload}-{self.rate:g}-{self.seed}-{self.before}-{self.after}"


_PAIRS = (("fcfs", "max_on_time"), ("max_on_time", "fcfs"), ("edf", "sjf"), ("sjf", "max_on_time"), ("wfq", "two_lane"))
_LOADS = (("burst", 6.0), ("poisson", 7.0), ("azure-like", 7.5), ("shift", 6.5))
# Fixed before the first run: each pair under each kind of load.
CASES = tuple(
    Case(workload, rate, 11 + 5 * i + k, before, after)
    for i, (workload, rate) in enumerate(_LOADS)
    for k, (before, after) in enumerate(_PAIRS)
)


def hmas(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs a command against the mesh in the folder."""
    return subprocess.run(
        [HMAS, *args, "--data-dir", str(folder)], capture_output=True, text=True, timeout=900, check=False
    )


def load(url: str, case: Case, out: Path) -> None:
    """Offers the case's workload once. That the generator cannot keep its pace shows in the figures of both sides."""
    command = [HMAS, "load", "run", case.workload, "--url", url, "--replay-field", "--rate", str(case.rate)]
    command += ["--duration", str(LOAD_S), "--seed", str(case.seed), "--out", str(out)]
    subprocess.run(command, capture_output=True, timeout=900, check=False)


def told(folder: Path, *args: str) -> dict[str, Any]:
    """Returns what `hmas whatif` says of all that came under the topology in force. Raises RuntimeError if it cannot
    say anything."""
    done = hmas(folder, "whatif", "--last", "30m", "--json", *args)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"hmas whatif failed: {done.stderr.strip()}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def run(case: Case, folder: Path) -> dict[str, Any]:
    """Runs a case on a mesh of its own, and returns what was predicted and what came, as shares on time."""
    data = folder / f"mesh-{case.name}"
    data.mkdir(parents=True, exist_ok=True)
    with (data / "up.log").open("wb") as log:
        mesh = subprocess.Popen(
            [HMAS, "up", "--port", "0", "--no-console", "--replay", "--data-dir", str(data)], stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + START_S
        while not (data / "mesh.json").exists():
            if mesh.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the mesh did not start: see {data / 'up.log'}")
            time.sleep(0.2)
        url = json.loads((data / "mesh.json").read_text())["gateway_url"]
        hmas(data, "pin", case.before)
        load(url, case, data / "load-before")
        predicted = told(data, "--topology", case.after)
        hmas(data, "pin", case.after)
        load(url, case, data / "load-after")
        came = told(data)
    finally:
        mesh.send_signal(signal.SIGINT)
        mesh.wait(60)
    return {
        **asdict(case),
        "observed_before": predicted["observed"]["on_time"],
        "simulated_before": predicted["in_force"]["on_time"],
        "abstained": predicted["abstains"],
        "predicted": predicted["candidates"][0]["figures"]["on_time"] if predicted["candidates"] else None,
        "came": came["observed"]["on_time"],
        "load_average": os.getloadavg()[0],
    }


def summary(rows: list[dict[str, Any]]) -> str:
    """Returns the table of runs, and how many predictions that were not withheld were right."""
    lines = [f"{'run':45} before  simulated  predicted  came   "]
    right = moved = given = 0
    for row in rows:
        name = f"{row['workload']} {row['rate']:g}/s {row['before']} -> {row['after']}"
        figures = [row[key] for key in ("observed_before", "simulated_before", "predicted", "came")]
        shown = "  ".join("    -" if value is None else f"{value:.3f}" for value in figures)
        lines.append(f"{name:45} {shown}{'  abstains' if row['abstained'] else ''}")
        if not row["abstained"] and row["predicted"] is not None:
            given += 1
            right += abs(row["predicted"] - row["came"]) <= TRUSTED
        moved += abs(row["came"] - row["observed_before"]) >= TRUSTED
    lines.append(
        f"{right} of {given} predictions within {100 * TRUSTED:g} points; {len(rows) - given} of {len(rows)} runs "
        f"without one; {moved} switches moved the share by that much"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("out/switches"), help="where finished runs are kept")
    parser.add_argument("--most", type=int, default=len(CASES), help="run at most so many that are not finished")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    left = options.most
    for case in CASES:
        kept = options.folder / f"{case.name}.json"
        if not kept.exists() and left > 0:
            left -= 1
            kept.write_text(json.dumps(run(case, options.folder)) + "\n")
    rows = [json.loads(path.read_text()) for path in sorted(options.folder.glob("*.json"))]
    print(summary(rows))


if __name__ == "__main__":
    main()
