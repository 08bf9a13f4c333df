"""Jobs of the nine applications of Maestro's Table I.

The paper gives their shares, classes and patterns (serial, fan-out, loop, supervisor), but neither lengths nor times.
Lengths are drawn from recorded answers of the same kind of role; the shapes are ours, with 3.1 calls a job on average
(the paper's is 3.09). Time outside of models is log-normal with the parameters that vLLM's router has from one coding
agent's trace (ln s: -4.6, 4.1), cut at `MOST_OUTSIDE_S`. A job's budget is a multiple of the median time that jobs of
its application take alone on an idle engine, outside time included. A job that could not keep it beside others, were
it never to wait, is drawn anew.
"""

import gzip
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b
from pathlib import Path
from random import Random
from statistics import median

from hmas.contracts.job import PrefixChain
from hmas.contracts.request import Request, Slo, TaskType
from hmas.engine.core.profile import EngineProfile
from hmas.sim.jobs import JobCall, SimJob
from hmas.sim.workload import OfferedRequest

TENANT = "acme"
SLO = Slo(60.0, 1.0)  # nobody states one: the job's budget alone is judged
BLOCK_TOKENS = 16
MOST_ANSWER, MOST_PROMPT = 4096, 12_000
MOST_OUTSIDE_S = 5.0
OUTSIDE_MU, OUTSIDE_SIGMA = -4.6, 4.1
FACTOR_INTERACTIVE, FACTOR_BATCH = 3.0, 5.0
SLOWED = 1.25  # what a full batch makes of a time alone; jobs that would be late by it are drawn anew
PROFILED, PROFILE_SEED = 400, 7001  # jobs of each application that its budget is made from
TAU, WHO = "agentic/sierra-research_tau-bench.jsonl.gz", "agentic/ag2ai_Agents_Failure_Attribution.jsonl.gz"
PROMPTS = ("EssayGeneration", "LongFormGeneration", "Translation", "MathReasoning", "QA", "CodeGeneration")


@dataclass(frozen=True, slots=True)
class AgentRole:
    """An agent: the recorded answers that its lengths are drawn from, and the tokens of its system prompt."""

    answers: str
    system_tokens: int


ROLES = {
    "booking": AgentRole("tau tool", 1400),
    "booking says": AgentRole("tau text", 1400),
    "food": AgentRole("tau tool", 700),
    "food says": AgentRole("tau text", 700),
    "planner": AgentRole("Orchestrator", 500),
    "writer": AgentRole("EssayGeneration", 400),
    "reviewer": AgentRole("Verification_Expert", 450),
    "supervisor": AgentRole("Orchestrator", 600),
    "reporter": AgentRole("WebSurfer", 500),
    "editor": AgentRole("EssayGeneration", 400),
    "analyst": AgentRole("DataAnalysis_Expert", 800),
    "solver": AgentRole("MathReasoning", 200),
    "answerer": AgentRole("QA", 200),
    "translator": AgentRole("Translation", 150),
    "travel": AgentRole("tau tool", 1600),
    "guide": AgentRole("Assistant", 900),
    "coder": AgentRole("CodeGeneration", 600),
    "tester": AgentRole("PythonDebugging_Expert", 500),
}


@cache
def answer_lengths(data: Path) -> Mapping[str, tuple[int, ...]]:
    """Reads the lengths of recorded answers by role, in tokens. Raises FileNotFoundError if a file is missing."""
    found: defaultdict[str, list[int]] = defaultdict(list)
    for record in _lines(data / TAU):
        for step in record["steps"]:
            if step["role"] == "assistant":
                found["tau tool" if step.get("tool_calls") else "tau text"].append(step["tokens"])
            elif step["role"] == "tool":
                found["tau result"].append(step["tokens"])
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


@dataclass(frozen=True, slots=True)
class _Call:
    role: str
    thread: int
    prompt_tokens: int
    output_tokens: int
    after: tuple[int, ...]
    outside_s: float


@dataclass(slots=True)
class _Draft:
    """A job in the making. A thread is a conversation with one agent, whose prompts grow; `says` adds a call to it."""

    random: Random
    lengths: Mapping[str, Sequence[int]]
    calls: list[_Call] = field(default_factory=list)
    histories: dict[int, int] = field(default_factory=dict)

    def says(self, role: str, added: int, after: Sequence[int] = (), *, thread: int | None = None) -> int:
        number = len(self.calls)
        thread = number if thread is None else thread
        history = self.histories.get(thread, ROLES[role].system_tokens) + added
        output = self.random.choice(self.lengths[ROLES[role].answers])
        prompt = min(MOST_PROMPT, history)
        outside_s = self.outside_s() if after else 0.0
        self.calls.append(_Call(role, thread, prompt, output, tuple(after), outside_s))
        self.histories[thread] = history + output
        return number

    def asked(self) -> int:
        """Returns the tokens of what a person asks or hands in."""
        return min(3000, int(self.random.lognormvariate(4.6, 0.8)) + 10)

    def told(self) -> int:
        """Returns the tokens of a tool's result."""
        return min(2000, self.random.choice(self.lengths["tau result"]))

    def outside_s(self) -> float:
        return min(MOST_OUTSIDE_S, self.random.lognormvariate(OUTSIDE_MU, OUTSIDE_SIGMA))

    def output(self, number: int) -> int:
        return self.calls[number].output_tokens


def _tools(draft: _Draft, role: str, calls: int, final: str) -> None:
    before = draft.says(role, draft.asked(), thread=0)
    for number in range(1, calls):
        before = draft.says(final if number == calls - 1 else role, draft.told(), (before,), thread=0)


def _booking(draft: _Draft) -> None:
    _tools(draft, "booking", draft.random.choices((2, 3, 4, 5), (4, 3, 2, 1))[0], "booking says")


def _food(draft: _Draft) -> None:
    _tools(draft, "food", draft.random.choice((2, 3)), "food says")


def _document(draft: _Draft) -> None:
    plan = draft.says("planner", draft.asked())
    text = draft.says("writer", draft.output(plan), (plan,), thread=1)
    review = draft.says("reviewer", draft.output(text), (text,), thread=2)
    if draft.random.random() < 0.2:
        text = draft.says("writer", draft.output(review), (review,), thread=1)
        draft.says("reviewer", draft.output(text), (text,), thread=2)


def _news(draft: _Draft) -> None:
    plan = draft.says("supervisor", draft.asked())
    found = [draft.says("reporter", draft.told(), (plan,)) for _ in range(draft.random.choice((2, 3, 3, 4)))]
    draft.says("editor", sum(map(draft.output, found)), found)


def _performance(draft: _Draft) -> None:
    first = draft.says("analyst", draft.asked() + 600, thread=0)
    second = draft.says("analyst", draft.told(), (first,), thread=0)
    draft.says("analyst", draft.told(), (second,), thread=0)


def _question(draft: _Draft) -> None:
    if draft.random.random() < 0.4:
        thought = draft.says("solver", draft.asked())
        draft.says("answerer", draft.output(thought), (thought,))
    else:
        draft.says("answerer", draft.asked())


def _translation(draft: _Draft) -> None:
    for _ in range(draft.random.choice((2, 3, 4))):
        draft.says("translator", draft.asked() + 100)


def _travel(draft: _Draft) -> None:
    before = draft.says("travel", draft.asked(), thread=0)
    for _ in range(3):
        before = draft.says("travel", draft.told(), (before,), thread=0)
    plan = draft.says("planner", draft.output(before) + 300, (before,))
    draft.says("guide", draft.output(plan), (plan,))


def _refactoring(draft: _Draft) -> None:
    before = draft.says("coder", 1500 + draft.asked(), thread=0)
    for _ in range(draft.random.choice((1, 1, 2))):
        tested = draft.says("tester", draft.output(before), (before,), thread=1)
        if draft.random.random() < 0.5:
            return
        before = draft.says("coder", draft.output(tested), (tested,), thread=0)


@dataclass(frozen=True, slots=True)
class Application:
    jobs: int  # in Table I
    interactive: bool
    build: Callable[[_Draft], None]


APPLICATIONS = {
    "meeting booking": Application(8626, True, _booking),
    "document writing": Application(8319, False, _document),
    "news collection": Application(6616, False, _news),
    "performance": Application(6548, False, _performance),
    "question answering": Application(5849, True, _question),
    "translation": Application(5124, False, _translation),
    "food": Application(3334, True, _food),
    "travel": Application(1543, True, _travel),
    "code refactoring": Application(810, False, _refactoring),
}


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
    draft = _Draft(random, answer_lengths(data))
    APPLICATIONS[name].build(draft)
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
