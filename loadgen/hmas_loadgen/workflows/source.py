"""Makes the jobs of a run: they start at random, and each call after the first waits for those before it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hmas.laws.tokens import estimate_prompt_tokens
from hmas_loadgen.slo import annotate
from hmas_loadgen.traces.row import Trace, TraceCall, TraceRow
from hmas_loadgen.workflows import typed
from hmas_loadgen.workflows.recorded import workflows_at
from hmas_loadgen.workflows.script import JobScript, recorded_script

JOBS_PER_S = 0.5
DURATION_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSource:
    """Where workflows come from: `typed` for the project's own, or the path of a file or folder of recorded ones, of
    which each is sent once in an order drawn by the seed before any is sent again.

    Jobs start at `jobs_per_s` on average within `duration_s`. `budget_s`: what each job is allowed from its first call
    to the end of its last one; None: a job is on time if each of its calls is. `tenants` maps names to shares.
    """

    workflow: str
    jobs_per_s: float | None = None
    duration_s: float | None = None
    budget_s: float | None = None
    seed: int = 0
    tenants: Mapping[str, float] = field(default_factory=dict)

    def load(self) -> Trace:
        """Returns the calls of all jobs as rows with an SLO each. Raises ValueError if there are no workflows, or an
        option does not fit."""
        rate, seconds = self.jobs_per_s or JOBS_PER_S, self.duration_s or DURATION_S
        if rate <= 0 or seconds <= 0 or (self.budget_s is not None and self.budget_s <= 0):
            raise ValueError("the rate of jobs, the duration and a job's budget must be above 0")
        random, number, rows = Random(f"{self.seed} workflows"), 0, list[TraceRow]()
        draw, told = self._scripts(random)
        at_s = random.expovariate(rate)
        while at_s < seconds or not rows:
            tenant = random.choices(list(self.tenants), list(self.tenants.values()))[0] if self.tenants else None
            rows += _rows(f"job{number:05d}", draw(number), min(at_s, seconds), self.budget_s, tenant)
            at_s, number = at_s + random.expovariate(rate), number + 1
        name = self.workflow if self.workflow == typed.NAME else Path(self.workflow).name.split(".")[0]
        note = f"{number} jobs of {told} in a closed loop at {rate:g} jobs/s, seed {self.seed}"
        return annotate(Trace(name=name, rows=tuple(rows), note=note, span_s=seconds), self.seed)

    def _scripts(self, random: Random) -> tuple[Callable[[int], JobScript], str]:
        """Returns what makes the script of the job with a number, and in words what the jobs are."""
        if self.workflow == typed.NAME:
            return lambda number: typed.typed_script(random), "the project's own workflows"
        path = Path(self.workflow)
        if not path.exists():
            raise ValueError(f"--workflow {self.workflow!r}: give {typed.NAME}, or a file or folder of workflows")
        found = workflows_at(path)
        random.shuffle(found)
        return lambda number: recorded_script(found[number % len(found)], random), f"{len(found)} recorded workflows"


def _rows(job: str, script: JobScript, at_s: float, budget_s: float | None, tenant: str | None) -> list[TraceRow]:
    return [
        TraceRow(
            arrival_s=at_s,
            input_tokens=estimate_prompt_tokens(list(call.messages)),
            output_tokens=call.output_tokens,
            task=call.task,
            tenant=tenant,
            call=TraceCall(
                job=job,
                template=script.template,
                number=number,
                after=call.after,
                outside_s=call.outside_s,
                budget_s=budget_s,
                messages=tuple(call.messages),
            ),
        )
        for number, call in enumerate(script.calls)
    ]
