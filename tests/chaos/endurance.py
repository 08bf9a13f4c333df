"""A mesh under steady load whose processes are killed at random, for as long as you like:
`python -m tests.chaos.endurance --minutes 60 --page`.

Every request is accounted for, and what each process holds (resident memory, descriptors, tasks of its event loop) is
sampled: under load, where it follows the requests of the moment, and at rest, where it cannot. A process that leaks
holds more at the end than after the warm-up.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import httpx

from tests.chaos.hurt import metric
from tests.chaos.load import Load
from tests.conftest import running_mesh

RESULTS = Path(__file__).parents[2] / "docs" / "results"
RATE = 8.0
SAMPLE_S = 5.0
WARM_UP = 1 / 6  # the part of the time after which nothing may grow any more
REST_EVERY_S = 600.0
REST_S = 15.0  # of each pause of the load, after the last request has ended: idle connections close in it
ENV = {"HMAS_KEEP_ALIVE_S": "5"}  # and so do those of clients
SETTLE_S = 15.0  # without a kill at the end, so that what was killed is there again
MAY_GROW = 1.25  # of resident memory: allocators keep what a burst once needed
GROWTH_MB, GROWTH = 20.0, 4  # what is not counted as growth: MB; descriptors and tasks at rest


@dataclass
class Held:
    """What one process held at each sample: MB, descriptors, tasks."""

    rss_mb: list[float] = field(default_factory=list)
    descriptors: list[float] = field(default_factory=list)
    tasks: list[float] = field(default_factory=list)


@dataclass
class Row:
    """The medians of a process after the warm-up: of the first third of the time left, and of the last. What it held in
    the first and in the last pause."""

    process: str
    kills: int
    rss_mb: tuple[float, float]
    descriptors: tuple[float, float]
    tasks: tuple[float, float]
    descriptors_at_rest: tuple[float, float]
    tasks_at_rest: tuple[float, float]

    def grown(self) -> list[str]:
        found = []
        first, last = self.rss_mb
        if last > max(first * MAY_GROW, first + GROWTH_MB):
            found.append(f"{self.process}: {first:.0f} MB, then {last:.0f} MB")
        for name, (first, last) in (("descriptors", self.descriptors_at_rest), ("tasks", self.tasks_at_rest)):
            if last > first + GROWTH:
                found.append(f"{self.process} at rest: {first:.0f} {name}, then {last:.0f}")
        return found


@dataclass
class Endurance:
    """One run. `ends` counts the requests by their end (`Load.ends`); `running` are the medians of those running at
    once, as a `Row` has them."""

    minutes: float
    rate: float
    seed: int
    kills: int
    ends: dict[str, int]
    running: tuple[float, float]
    rows: list[Row]

    def faults(self) -> list[str]:
        """Returns what must not be: requests without an end, and growth."""
        lost = self.ends.get("lost", 0)
        return [*([f"{lost} requests without an end"] if lost else []), *(g for row in self.rows for g in row.grown())]

    def page(self) -> str:
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self.ends.items()))
        lost, warm_up = self.ends.get("lost", 0), f"{WARM_UP * self.minutes:.0f}"
        lines = [
            "# Soak",
            "",
            f"`make soak MINUTES={self.minutes:g}` wrote this page: {self.rate:g} requests/s, {self.kills} kills",
            f"(`kill -9` of a process drawn at random, seed {self.seed}).",
            "",
            f"Requests: {ends}. Those that a killed engine had begun to answer end with `error`, those of a killed",
            f"gateway and those that came before it was back with `connection`. Unaccounted: {lost}.",
            "",
            f"Medians of the first and of the last third of the time after the first {warm_up} minutes. Descriptors",
            f"and tasks follow the requests that run at once ({self.running[0]:.0f} → {self.running[1]:.0f}), so they",
            f"are also told at rest: {REST_S:.0f} s after the last request had ended, in the first and the last of the",
            f"pauses that the load makes every {REST_EVERY_S / 60:.0f} minutes. Growth at rest is growth.",
            "A process that was killed begins anew in between.",
            "",
            "| process | kills | resident MB | descriptors | tasks | descriptors at rest | tasks at rest |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in self.rows:
            cells = [
                f"{a:.0f} → {b:.0f}" if b == b else "-"  # NaN: it has no such figure
                for a, b in (row.rss_mb, row.descriptors, row.tasks, row.descriptors_at_rest, row.tasks_at_rest)
            ]
            lines.append(f"| {row.process} | {row.kills} | {' | '.join(cells)} |")
        faults = self.faults()
        lines += ["", f"Grown: {'; '.join(faults) if faults else 'nothing'}.", ""]
        return "\n".join(lines)


def _ends(values: list[float]) -> tuple[float, float]:
    if not values:
        return float("nan"), float("nan")
    rest = values[int(WARM_UP * len(values)) :] or values
    third = max(1, len(rest) // 3)
    return median(rest[:third]), median(rest[-third:])


def _first_and_last(values: list[float]) -> tuple[float, float]:
    return (values[0], values[-1]) if values else (float("nan"), float("nan"))


def _sample(mesh: Any, name: str, held: Held) -> None:
    try:
        process = Path(f"/proc/{mesh.pid(name)}")
        status = (process / "status").read_text()
        rss = next(line for line in status.splitlines() if line.startswith("VmRSS"))
        descriptors = len(list((process / "fd").iterdir()))
    except (LookupError, OSError, StopIteration):  # it was killed a moment ago
        return
    held.rss_mb.append(int(rss.split()[1]) / 1024)
    held.descriptors.append(descriptors)
    url = mesh.state["ops_urls"].get(name)
    if url:
        try:
            held.tasks.append(metric(url, "hmas_asyncio_tasks"))
        except httpx.HTTPError:
            pass


async def endure(mesh: Any, minutes: float, kill_every_s: float, seed: int) -> Endurance:
    """Runs the load against a mesh, kills one of its processes every `kill_every_s` seconds, and reports."""
    random, names = Random(seed), [*mesh.state["pids"]]
    held, at_rest = ({name: Held() for name in names} for _ in range(2))
    running: list[float] = []
    kills = dict.fromkeys(names, 0)
    started_s = time.monotonic()
    end_s, next_kill_s = started_s + 60.0 * minutes, started_s + kill_every_s
    next_rest_s = started_s + REST_EVERY_S - 2 * REST_S
    async with Load(mesh.url, rate=RATE) as load:
        while (now_s := time.monotonic()) < end_s:
            if now_s >= next_kill_s and end_s - now_s > SETTLE_S:
                next_kill_s += kill_every_s
                name = random.choice(names)
                try:
                    mesh.kill(name)
                    kills[name] += 1
                except (LookupError, ProcessLookupError):  # not back from its last death
                    pass
            running.append(load.running)
            for name in names:
                await asyncio.to_thread(_sample, mesh, name, held[name])
            if now_s >= next_rest_s:
                next_rest_s += REST_EVERY_S
                async with load.at_rest():
                    await asyncio.sleep(REST_S)
                    for name in names:
                        await asyncio.to_thread(_sample, mesh, name, at_rest[name])
            await asyncio.sleep(min(SAMPLE_S, max(0.0, end_s - time.monotonic())))
    rows = [
        Row(
            name,
            kills[name],
            _ends(each.rss_mb),
            _ends(each.descriptors),
            _ends(each.tasks),
            _first_and_last(at_rest[name].descriptors),
            _first_and_last(at_rest[name].tasks),
        )
        for name, each in held.items()
    ]
    return Endurance(minutes, RATE, seed, sum(kills.values()), dict(load.ends), _ends(running), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--kill-every-s", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true", help="write docs/results/soak.md and soak.json")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="hmas-soak-") as folder,
        running_mesh(Path(folder), "--replay", env=ENV) as mesh,
    ):
        done = asyncio.run(endure(mesh, args.minutes, args.kill_every_s, args.seed))
    print(done.page())
    if args.page:
        (RESULTS / "soak.md").write_text(done.page())
        (RESULTS / "soak.json").write_text(json.dumps(asdict(done), indent=1) + "\n")
    return 1 if done.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
