"""`python -m benchmarks.fidelity` calibrates a profile, replays a trace against a real and an emulated engine, and
writes the page that compares them."""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

import orjson
import yaml

from benchmarks.fidelity.engines import emulated, real
from benchmarks.fidelity.page import page
from benchmarks.fidelity.replays import Store, replay
from benchmarks.fidelity.scenario import LOADS, ReplayScenario, slices
from benchmarks.fidelity.speed import PROBE, EmulatedRun, Probes, paired, probe_s
from hmas.engine.core.profile import EngineProfile, parse_profiles
from hmas.mesh.calibrate.measurement import Measurement
from hmas.mesh.calibrate.outcome import calibrated
from hmas_loadgen.traces.row import Trace
from tests.engines.engine_server import MODEL
from tests.engines.environment import VERSION, EngineEnvironment, Unavailable, ready

PROFILE = "fidelity"
CALIBRATION_S = 60.0


def _measurements(journal: Path) -> list[Measurement]:
    """Returns the measurements of a calibration's journal, whose first line is its subject."""
    return [Measurement(**orjson.loads(line)) for line in journal.read_bytes().splitlines()[1:]]


class OutOfTime(Exception):
    """Raised if the time of --most-s is not enough for the next step. The next call continues from there."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m benchmarks.fidelity", description=__doc__)
    data = os.environ.get("HMAS_DATA")
    p.add_argument(
        "--data",
        type=Path,
        default=Path(data) if data else None,
        help="folder with traces/; default: $HMAS_DATA, or a trace is made",
    )
    p.add_argument("--runs", type=int, default=5, help="number of replays per load against the real engine")
    p.add_argument("--work", type=Path, default=Path("out/fidelity"), help="folder in which finished replays are kept")
    p.add_argument("--out", type=Path, default=Path("docs/results/fidelity.md"), help="page to write")
    p.add_argument(
        "--most-s",
        type=float,
        default=float("inf"),
        help="seconds after which no step is begun; call again to continue",
    )
    return p


class FidelityStudy:
    """Makes all calibrations and replays of one scenario, except those already stored.

    Each round has one calibration and one replay per load, so that a slow change of the machine affects both alike. The
    first calibration sets the loads; the profile is fitted to the measurements of all.
    """

    def __init__(self, args: argparse.Namespace, environment: EngineEnvironment) -> None:
        self.scenario = ReplayScenario()
        self._args = args
        self._environment = environment
        self._folder: Path = args.work / f"{self.scenario.digest()}-{PROBE}"
        self._store = Store(self._folder / "replays")
        self._until_s = time.monotonic() + args.most_s

    def run(self) -> str:
        """Makes the missing calibrations and replays and returns the page. Raises OutOfTime."""
        rounds = range(self._args.runs)
        if not all(self._done(number) for number in rounds):
            with real(self._environment, self.scenario) as url:
                for number in rounds:
                    self._round(number, url)
        profile = self._profile()
        traces = self._traces()
        if not all(self._store.has(f"emulated {load.name}") for load in LOADS):
            with emulated(self._write(profile), PROFILE) as url:
                for load in LOADS:
                    self._replay(f"emulated {load.name}", url, traces[load.name])
        runs = {load.name: [self._store.load(self._name(load.name, n)) for n in rounds] for load in LOADS}
        emulations = {load.name: self._store.load(f"emulated {load.name}") for load in LOADS}
        pairs = {load.name: [self._paired(profile, self._name(load.name, n)) for n in rounds] for load in LOADS}
        return page(self.scenario, profile, VERSION, traces[LOADS[0].name].name, runs, emulations, pairs)

    def _paired(self, profile: EngineProfile, name: str) -> EmulatedRun:
        factor = Probes(*self._store.probes_s(name)).mean_s / self._usual_s()
        return paired(profile, self._store.seen(name), factor)

    def _done(self, number: int) -> bool:
        return self._probes(number).exists() and all(self._store.has(self._name(load.name, number)) for load in LOADS)

    def _round(self, number: int, url: str) -> None:
        if not self._probes(number).exists():
            self._points(number).unlink(missing_ok=True)  # an interrupted one's, measured at another speed
            before_s = asyncio.run(probe_s(url, MODEL))
            self._calibrate(url, number)
            self._probes(number).write_text(json.dumps([before_s, asyncio.run(probe_s(url, MODEL))]))
        for name, trace in self._traces().items():
            self._replay(self._name(name, number), url, trace, probed=True)

    def _calibrate(self, url: str, number: int) -> None:
        """Calibrates the engine with the command `hmas calibrate`, as users do."""
        self._in_time(CALIBRATION_S)
        s = self.scenario
        command = [
            str(Path(sys.executable).with_name("hmas")), "calibrate", url, "--out", str(self._calibration(number)),
            "--name", PROFILE, "--max-batch", str(s.max_num_seqs), "--max-num-seqs", str(s.max_num_seqs),
            "--max-num-batched-tokens", str(s.max_num_batched_tokens), "--max-requests", "72",
        ]  # fmt: skip
        subprocess.run(command, check=True)

    def _calibration(self, number: int) -> Path:
        return self._folder / f"calibration-{number}.yaml"

    def _probes(self, number: int) -> Path:
        return self._calibration(number).with_suffix(".probes.json")

    def _calibrated_at(self, number: int) -> Probes:
        return Probes(*json.loads(self._probes(number).read_text()))

    def _usual_s(self) -> float:
        """Returns the machine's time for the same work during the calibrations, in the median."""
        return median(self._calibrated_at(number).mean_s for number in range(self._args.runs))

    def _points(self, number: int) -> Path:
        return self._calibration(number).with_suffix(".points.jsonl")

    def _profile(self) -> EngineProfile:
        """Returns the engine profile fitted to the measurements of all rounds, at the calibrations' usual speed."""
        (first,) = parse_profiles(self._calibration(0).read_text()).values()
        usual_s = self._usual_s()
        points = [
            m if m.seconds is None else replace(m, seconds=m.seconds * usual_s / self._calibrated_at(number).mean_s)
            for number in range(self._args.runs)
            for m in _measurements(self._points(number))
        ]
        return calibrated(PROFILE, first.source, points, first.limits).profile

    def _write(self, profile: EngineProfile) -> Path:
        path = self._folder / "profile.yaml"
        body = asdict(profile)
        path.write_text(yaml.safe_dump({body.pop("name"): body}, sort_keys=False))
        return path

    def _traces(self) -> dict[str, Trace]:
        (first,) = parse_profiles(self._calibration(0).read_text()).values()
        return slices(self.scenario, first, self._args.data)

    @staticmethod
    def _name(load: str, number: int) -> str:
        return f"real {load} {number}"

    def _replay(self, name: str, url: str, trace: Trace, *, probed: bool = False) -> None:
        if self._store.has(name):
            return
        self._in_time(2 * trace.duration_s)
        before_s = [asyncio.run(probe_s(url, MODEL))] if probed else []
        found, seen = asyncio.run(replay(name, url, MODEL, trace))
        after_s = [asyncio.run(probe_s(url, MODEL))] if probed else []
        self._store.save(name, found, seen, (*before_s, *after_s))
        print(name, found, before_s, after_s, flush=True)

    def _in_time(self, needed_s: float) -> None:
        if time.monotonic() + needed_s > self._until_s:
            raise OutOfTime


def main() -> int:
    args = parser().parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops the engines on SIGTERM as on Ctrl-C
    try:
        text = FidelityStudy(args, ready()).run()
    except Unavailable as reason:
        print(f"real vLLM cannot run on this machine: {reason}", file=sys.stderr)
        return 3
    except OutOfTime:
        print("the time of --most-s is used up; call again to continue")
        return 0
    args.out.write_text(text, encoding="utf-8")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
