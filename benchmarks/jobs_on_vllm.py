"""`python -m benchmarks.jobs_on_vllm` measures agents' loops on real vLLM engines on this CPU: what is promised and
found in their prefix caches, and how long jobs take beside least outstanding. Each round carries out two suites of
`make test-engines`; finished rounds are kept: call again to continue. It wants an idle machine."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from experiments.pages.template import render
from tests.engines.environment import VERSION

SUITES = ("tests/engines/test_prefix_promises.py", "tests/engines/test_agents_on_many_engines.py")
TEMPLATE = Path(__file__).with_name("jobs_on_vllm.md.j2")
Round = dict[str, float]


class RoundFigure(NamedTuple):
    """What is measured in each round, and how it is told and judged; None: there is no goal for it."""

    words: str
    tell: Callable[[float], str]
    goal: str = ""
    met: Callable[[float], bool] | None = None


FIGURES = {
    "kept": RoundFigure("promises kept by feedback alone", "{:.1%}".format, "≥ 95 %", lambda x: x >= 0.95),
    "kept_by_events": RoundFigure("promises kept with counted events", "{:.1%}".format, "≥ 99 %", lambda x: x >= 0.99),
    "stale_s": RoundFigure(
        "last wrong promise after a reset of the caches", "{:.2f} s".format, "≤ 2 s", lambda x: x <= 2.0
    ),
    "excess": RoundFigure("emulated hits over real ones", "{:+.1%}".format, "± 2 %", lambda x: abs(x) <= 0.02),
    "excess_pressed": RoundFigure("the same under pressure", "{:+.1%}".format, "± 2 %", lambda x: abs(x) <= 0.02),
    "job_time": RoundFigure("job time p50 over least outstanding's", "{:.2f}".format, "≤ 0.7", lambda x: x <= 0.7),
    "computed": RoundFigure("prompt tokens computed over least outstanding's", "{:.2f}".format),
}


def measure(file: Path) -> None:
    """Carries out a round, which counts whether its suites pass or not. Raises RuntimeError if it lacks figures."""
    draft = file.with_suffix(".part")
    draft.unlink(missing_ok=True)
    env = os.environ | {"FIGURES_FILE": str(draft.absolute())}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-m", "engines", "-rs", *SUITES], env=env, check=False
    )
    noted = [json.loads(line) for line in draft.read_text().splitlines()] if draft.exists() else []
    found = {each["figure"]: each["value"] for each in noted}
    if found.keys() != FIGURES.keys():
        raise RuntimeError(f"the suite ended with {done.returncode}, and noted {sorted(found)}: see its output above")
    file.write_text(json.dumps(found) + "\n")
    draft.unlink()


def page(rounds: Sequence[Round]) -> str:
    rows = []
    for name, figure in FIGURES.items():
        values = [each[name] for each in rounds]
        verdict = "no goal"
        if figure.met is not None:
            met = sum(map(figure.met, values))
            verdict = "met" if met == len(values) else f"**missed** in {len(values) - met} of {len(values)}"
        rows.append((figure.words, figure.goal, *map(figure.tell, values), verdict))
    heads = ["figure", "goal", *(f"round {i}" for i in range(1, len(rounds) + 1)), "verdict"]
    return render(TEMPLATE, rows=rows, heads=heads, VERSION=VERSION)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs_on_vllm", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds")
    parser.add_argument("--work", type=Path, default=Path("out/jobs-on-vllm"), help="folder in which rounds are kept")
    parser.add_argument("--out", type=Path, default=Path("docs/results/jobs-on-vllm.md"), help="page to write")
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    files = [args.work / f"{number}.json" for number in range(1, args.rounds + 1)]
    for file in files:
        if not file.exists():
            measure(file)
    rounds = [json.loads(file.read_text()) for file in files]
    args.out.write_text(page(rounds), encoding="utf-8")
    args.out.with_suffix(".json").write_text(json.dumps(rounds, indent=1) + "\n")
    print(f"wrote {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
