"""Jobs of the nine applications of Maestro's Table I, in the shapes of `hmas_loadgen.workflows.applications`.

Lengths are drawn from recorded answers of the same kind of role. A job's budget is a multiple of the median time that
jobs of its application take alone on an idle engine, outside time included. A job that could not keep it beside others,
were it never to wait, is drawn anew.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median

from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.sim.workload import OfferedRequest
from hmas_lab.sim.jobs import JobCall, SimJob
from hmas_loadgen.workflows.applications import APPLICATIONS, ROLES, TOOL_RESULTS, draft_of

TENANT = "acme"
SLO = Slo(60.0, 1.0)  # nobody states one: the job's budget alone is judged
BLOCK_TOKENS = 16
MOST_ANSWER = 4096
FACTOR_INTERACTIVE, FACTOR_BATCH = 3.0, 5.0
SLOWED = 1.25  # what a full batch makes of a time alone; jobs that would be late by it are drawn anew
PROFILED, PROFILE_SEED = 400, 7001  # jobs of each application that its budget is made from
TAU, WHO = "agentic/sierra-research_tau-bench.jsonl.gz", "agentic/ag2ai_Agents_Failure_Attribution.jsonl.gz"
PROMPTS = ("EssayGeneration", "LongFormGeneration", "Translation", "MathReasoning", "QA", "CodeGeneration")


@cache
def answer_lengths(data: Path) -> Mapping[str, tuple[int, ...]]:
    """Reads the lengths of recorded answers by role, in tokens. Raises FileNotFoundError if a file is missing."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record in _lines(data / TAU):
        for step in record["steps"]:
            if step["role"] == "assistant":
                found["tau tool" if step.get("tool_calls") else "tau text"].append(step["tokens"])
            elif step["role"] == "tool":
                found[TOOL_RESULTS].append(step["tokens"])
    for record in _lines(data / WHO):
        for step in record["steps"]:
            found[str(step.get("name") or step["role"]).split(" (")[0]].append(step["tokens"] or 1)
    for name in PROMPTS:
        rows = (row for row in _lines(data / "prompts" / f"{name}.jsonl.gz") if row["response_model"] != "human")
        found[name] = [row["response_tokens"] for row in rows if row["response_tokens"]]
    return {name: tuple(max(1, min(n, MOST_ANSWER)) for n in lengths) for name, lengths in found.items()}


def _lines(path: Path) -> list[dict]:  # type: ignore[type-arg]
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def alone_s(profile: EngineProfile, prompt_tokens: int, output_tokens: int) -> float:
    """Returns the seconds that a call takes on an idle engine."""
    cost, budget = profile.cost, profile.limits.max_num_batched_tokens
    prefill = cost.c0_s * -(-prompt_tokens // budget) + cost.c_p_s * prompt_tokens
    context = prompt_tokens + output_tokens / 2.0
    return prefill + (output_tokens - 1) * (cost.c0_s + cost.c_d_s + cost.c_k_s * context)


def service_s(profile: EngineProfile, prompt_tokens: float, output_tokens: float) -> float:
    """Returns the engine time that a call takes up: its prompt's, and for each token a sequence's share of a step."""
    cost, seqs = profile.cost, profile.limits.max_num_seqs
    return cost.c_p_s * prompt_tokens + output_tokens * (cost.c0_s / seqs + cost.c_d_s)


def job_alone_s(profile: EngineProfile, job: SimJob) -> float:
    """Returns the seconds that a job takes if nothing waits: the longest way through its calls."""
    ends: list[float] = []
    for call in job.calls:
        begin = max((ends[i] for i in call.after), default=0.0) + call.outside_s
        request = call.offered.request
        ends.append(begin + alone_s(profile, request.prompt_tokens, call.offered.output_tokens))
    return max(ends)


@cache
def budgets(data: Path, profile: EngineProfile) -> Mapping[str, float]:
    """Returns the seconds that jobs of each application are allowed."""
    found = {}
    for name, application in APPLICATIONS.items():
        random = Random(f"{PROFILE_SEED} {name}")
        alone = [job_alone_s(profile, _job(name, str(i), 0.0, 0.0, random, data)) for i in range(PROFILED)]
        found[name] = median(alone) * (FACTOR_INTERACTIVE if application.interactive else FACTOR_BATCH)
    return found


def make_jobs(
    data: Path, profile: EngineProfile, jobs_per_s: float, seconds: float, seed: int, batch: float | None = None
) -> list[SimJob]:
    """Returns the jobs that arrive at random within `seconds`. `batch`: the share of batch jobs; None: Table I's."""
    random = Random(f"{seed} jobs")
    weights = {name: float(application.jobs) for name, application in APPLICATIONS.items()}
    if batch is not None:
        for kind, share in ((True, 1.0 - batch), (False, batch)):
            names = [n for n, a in APPLICATIONS.items() if a.interactive is kind]
            total = sum(weights[n] for n in names)
            weights |= {n: share * weights[n] / total for n in names}
    allowed, found, at_s = budgets(data, profile), list[SimJob](), random.expovariate(jobs_per_s)
    while at_s < seconds:
        name = random.choices(list(weights), list(weights.values()))[0]
        job = _job(name, f"j{len(found):05d}", at_s, allowed[name], random, data)
        while SLOWED * job_alone_s(profile, job) > allowed[name]:
            job = _job(name, f"j{len(found):05d}", at_s, allowed[name], random, data)
        found.append(job)
        at_s += random.expovariate(jobs_per_s)
    return found


def _job(name: str, job: str, at_s: float, budget_s: float, random: Random, data: Path) -> SimJob:
    draft = draft_of(name, random, answer_lengths(data))
    calls = []
    for number, call in enumerate(draft.calls):
        agent, thread = _digest("agent", name, call.role), _digest(job, str(call.thread))
        head = ROLES[call.role].system_tokens // BLOCK_TOKENS
        whole, prompt = (call.prompt_tokens + call.output_tokens) // BLOCK_TOKENS, call.prompt_tokens // BLOCK_TOKENS
        hashes = tuple((agent if i < head else thread) ^ i for i in range(whole))
        ends = [(agent, ROLES[call.role].system_tokens)]
        ends += [
            (thread ^ i, other.prompt_tokens)
            for i, other in enumerate(draft.calls[: number + 1])
            if other.thread == call.thread
        ]
        request = Request(
            id=f"{job}-{number}", model="model", tenant=TENANT, flow="", prompt_tokens=call.prompt_tokens,
            max_tokens=MOST_ANSWER, stream=True, slo=SLO, slo_stated=False, priority=0, weight=1.0, importance=0.75,
            arrival_s=at_s, prefix=PrefixChain(tuple(node for node, _ in ends), tuple(end for _, end in ends)),
        )  # fmt: skip
        offered = OfferedRequest(
            request=request, output_tokens=call.output_tokens, slo=SLO, task=TaskType.UNKNOWN,
            prefix_hashes=hashes[:prompt], answer_hashes=hashes[prompt:], job=job, job_budget_s=budget_s,
        )  # fmt: skip
        calls.append(JobCall(offered=offered, after=call.after, outside_s=call.outside_s))
    return SimJob(
        id=job, template=name, interactive=APPLICATIONS[name].interactive, arrival_s=at_s, budget_s=budget_s,
        calls=tuple(calls),
    )  # fmt: skip


def _digest(*parts: str) -> int:
    return int.from_bytes(blake2b("\0".join(parts).encode(), digest_size=6).digest(), "big") << 12
