"""Does `hmas whatif` foretell what a switch brings? Varied loads on an emulated mesh in real time: traffic under one
topology, a prediction for another one, the switch, and the same traffic again."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from hmas.contracts.control import TopologyName
from hmas.engine.core.profile import builtin_profile
from hmas.mesh.options import MeshOptions
from hmas.mesh.state import read_state
from hmas.sim.provenance import WITH_MESH, source_digest

HMAS = str(Path(sys.executable).parent / "hmas")
WITHIN, MOVING = 0.05, 0.05  # a prediction is right within so much; a switch that moves the share by so much counts
START_S = 120.0
HEAR_S = 8.0  # until `hmas whatif` has started and heard the pool, from when on it counts back
TOKEN_BUDGET = builtin_profile(MeshOptions().profile).limits.max_num_batched_tokens  # as an operator knows his engines'
T = TopologyName


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSwitch:
    """One switch: traffic of a `kind` at `rate` requests/s under `before`, then under `after`."""

    kind: str
    rate: float
    before: TopologyName
    after: TopologyName
    seed: int

    @property
    def name(self) -> str:
        return f"{self.kind} at {self.rate:g}/s, {self.before} to {self.after}, seed {self.seed}"


def plans() -> tuple[LiveSwitch, ...]:
    """Twenty switches, fixed before the first was run: two kinds of traffic, from light load to gross overload of two
    `tiny-emulated` engines, to and from the orders that differ most."""
    pairs = ((T.FCFS, T.MAX_ON_TIME), (T.MAX_ON_TIME, T.EDF), (T.FCFS, T.SJF), (T.SJF, T.FCFS), (T.EDF, T.MAX_ON_TIME))
    loads = (("burst", 7.0), ("burst", 10.0), ("azure-like", 8.0), ("azure-like", 12.0))
    return tuple(
        LiveSwitch(kind=kind, rate=rate, before=before, after=after, seed=1 + i)
        for i, (kind, rate) in enumerate(loads)
        for before, after in pairs
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcome:
    """What came of one switch, as shares on time. `abstained` says why the prediction was not to be believed, or is
    empty; `unstated` and `unstated_abstained` are the same, where nobody states the engines' token budget."""

    run: str
    before: float  # observed
    simulated: float  # of the same
    predicted: float
    after: float  # observed
    abstained: str
    unstated: float
    unstated_abstained: str
    requests: int

    @property
    def right(self) -> bool:
        return abs(self.predicted - self.after) <= WITHIN

    @property
    def moves(self) -> bool:
        return abs(self.after - self.before) >= MOVING


@contextmanager
def running(data_dir: Path) -> Iterator[tuple[Path, str]]:
    """Starts `hmas up` on free ports under `data_dir`, and yields that folder and the URL of its API. Raises
    RuntimeError if it does not start."""
    shutil.rmtree(data_dir, ignore_errors=True)
    data_dir.mkdir(parents=True)
    command = [HMAS, "up", "--port", "0", "--emulated", "2", "--replay", "--no-console", "--data-dir", str(data_dir)]
    with (data_dir / "up.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until_s = time.monotonic() + START_S
            while not (data_dir / "mesh.json").exists():
                if process.poll() is not None or time.monotonic() > until_s:
                    raise RuntimeError(f"the mesh did not start: see {data_dir / 'up.log'}")
                time.sleep(0.1)
            state = read_state(data_dir)
            # `hmas whatif` would simulate emulated engines by their own costs; of real ones it knows their pace alone.
            replace(state, profile="").write(data_dir)
            yield data_dir, state.gateway_url
        finally:
            process.send_signal(signal.SIGINT)


def carry_out(run: LiveSwitch, data_dir: Path, url: str, seconds: int, out: Path) -> LiveOutcome:
    """Makes one switch on the mesh that runs under `data_dir`. Raises RuntimeError if a command fails."""
    switch = "--topology", run.after.value
    stated = *switch, "--max-num-batched-tokens", str(TOKEN_BUDGET)
    told, unstated = _under(run.before, run, data_dir, url, seconds, out / "before", stated, switch)
    (came,) = _under(run.after, run, data_dir, url, seconds, out / "after", ())
    return LiveOutcome(
        run=run.name,
        before=told["observed"]["on_time"],
        simulated=told["in_force"]["on_time"],
        predicted=_predicted(told),
        after=came["observed"]["on_time"],
        abstained=told["abstains"],
        unstated=_predicted(unstated),
        unstated_abstained=unstated["abstains"],
        requests=told["observed"]["requests"],
    )


def _predicted(told: dict[str, Any]) -> float:
    """Returns what was observed plus the gain that is predicted of the only candidate, 0 if there is none."""
    return float(told["observed"]["on_time"] + sum(each["gain"] for each in told["candidates"]))


def _under(
    topology: TopologyName, run: LiveSwitch, data_dir: Path, url: str, seconds: int, out: Path, *asked: tuple[str, ...]
) -> list[dict[str, Any]]:
    """Pins a topology, offers the traffic until the last answer has come, and returns what `hmas whatif` answers to
    each of these options, of all that came since the pin: some orders take much longer for the last answers than
    others."""
    began_s = time.monotonic()
    _hmas(data_dir, "pin", topology)
    _load(run, url, seconds, out)
    found = []
    for options in asked:
        last_s = time.monotonic() - began_s + HEAR_S
        found.append(_hmas(data_dir, "whatif", "--last", f"{last_s:.0f}s", *options, "--json"))
    return found


def _load(run: LiveSwitch, url: str, seconds: int, out: Path) -> None:
    args = ("load", "run", run.kind, "--url", url, "--replay-field", "--send-slo", "--duration", str(seconds),
            "--rate", f"{run.rate:g}", "--seed", str(run.seed), "--out", str(out))  # fmt: skip
    subprocess.run([HMAS, *args], capture_output=True, check=False)  # its status says whether it kept its own pace
    if not out.exists():
        raise RuntimeError(f"the load was not offered: hmas {' '.join(args)}")


def _hmas(data_dir: Path, *args: str) -> dict[str, Any]:
    command = [HMAS, *args, "--data-dir", str(data_dir)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):  # 3: a what-if that abstains
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()[-300:]}")
    return dict(json.loads(done.stdout)) if "--json" in args else {}


def kept_in(folder: Path, seconds: int) -> Path:
    """Returns the file of the switches that this code has made with so many seconds of traffic."""
    return folder / f"{source_digest(WITH_MESH)}-{seconds}.jsonl"


def read(path: Path) -> list[LiveOutcome]:
    """Returns the switches made so far; none if the file is not there."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [LiveOutcome(**json.loads(line)) for line in lines]


def missing(path: Path) -> Iterator[LiveSwitch]:
    """Yields the switches that are not in the file, which grows meanwhile."""
    for run in plans():
        if run.name not in {each.run for each in read(path)}:
            yield run


def keep(path: Path, outcome: LiveOutcome) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(outcome)) + "\n")


def counted(outcomes: Iterable[LiveOutcome]) -> dict[str, int]:
    """Returns how many switches were made, were foretold at all, were foretold right (an abstention is not right), and
    moved the share on time."""
    made: Sequence[LiveOutcome] = list(outcomes)
    told = [each for each in made if not each.abstained]
    return {
        "made": len(made),
        "told": len(told),
        "right": sum(each.right for each in told),
        "moves": sum(each.moves for each in made),
    }
