"""Jobs of the nine applications of Maestro's Table I, as shapes: which agents speak, after which, and how long.

The paper gives their shares, classes and patterns (serial, fan-out, loop, supervisor), but neither lengths nor times.
The shapes are ours, with 3.1 calls a job on average (the paper's is 3.09). Lengths are drawn from whatever answers the
caller has of each kind of role. Time outside of models is log-normal with the parameters that vLLM's router has from
one coding agent's trace (ln s: -4.6, 4.1), cut at `MOST_OUTSIDE_S`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

MOST_PROMPT = 12_000
MOST_OUTSIDE_S = 5.0
OUTSIDE_MU, OUTSIDE_SIGMA = -4.6, 4.1
TOOL_RESULTS = "tau result"  # the lengths of what tools answer


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


@dataclass(frozen=True, slots=True)
class DraftCall:
    """One call of a draft: who speaks, in which conversation, the tokens of its prompt and answer and those that the
    prompt has beyond what stood in the conversation before, and what it waits for."""

    role: str
    thread: int
    added_tokens: int
    prompt_tokens: int
    output_tokens: int
    after: tuple[int, ...]
    outside_s: float


@dataclass(slots=True)
class JobDraft:
    """A job in the making. A thread is a conversation with one agent, whose prompts grow; `says` adds a call to it."""

    random: Random
    lengths: Mapping[str, Sequence[int]]
    calls: list[DraftCall] = field(default_factory=list)
    histories: dict[int, int] = field(default_factory=dict)

    def says(self, role: str, added: int, after: Sequence[int] = (), *, thread: int | None = None) -> int:
        number = len(self.calls)
        thread = number if thread is None else thread
        history = self.histories.get(thread, ROLES[role].system_tokens) + added
        output = self.random.choice(self.lengths[ROLES[role].answers])
        prompt = min(MOST_PROMPT, history)
        waits_s = outside_s(self.random) if after else 0.0
        self.calls.append(DraftCall(role, thread, added, prompt, output, tuple(after), waits_s))
        self.histories[thread] = history + output
        return number

    def asked(self) -> int:
        """Returns the tokens of what a person asks or hands in."""
        return min(3000, int(self.random.lognormvariate(4.6, 0.8)) + 10)

    def told(self) -> int:
        """Returns the tokens of a tool's result."""
        return min(2000, self.random.choice(self.lengths[TOOL_RESULTS]))

    def output(self, number: int) -> int:
        return self.calls[number].output_tokens


def _tools(draft: JobDraft, role: str, calls: int, final: str) -> None:
    before = draft.says(role, draft.asked(), thread=0)
    for number in range(1, calls):
        before = draft.says(final if number == calls - 1 else role, draft.told(), (before,), thread=0)


def _booking(draft: JobDraft) -> None:
    _tools(draft, "booking", draft.random.choices((2, 3, 4, 5), (4, 3, 2, 1))[0], "booking says")


def _food(draft: JobDraft) -> None:
    _tools(draft, "food", draft.random.choice((2, 3)), "food says")


def _document(draft: JobDraft) -> None:
    plan = draft.says("planner", draft.asked())
    text = draft.says("writer", draft.output(plan), (plan,), thread=1)
    review = draft.says("reviewer", draft.output(text), (text,), thread=2)
    if draft.random.random() < 0.2:
        text = draft.says("writer", draft.output(review), (review,), thread=1)
        draft.says("reviewer", draft.output(text), (text,), thread=2)


def _news(draft: JobDraft) -> None:
    plan = draft.says("supervisor", draft.asked())
    found = [draft.says("reporter", draft.told(), (plan,)) for _ in range(draft.random.choice((2, 3, 3, 4)))]
    draft.says("editor", sum(map(draft.output, found)), found)


def _performance(draft: JobDraft) -> None:
    first = draft.says("analyst", draft.asked() + 600, thread=0)
    second = draft.says("analyst", draft.told(), (first,), thread=0)
    draft.says("analyst", draft.told(), (second,), thread=0)


def _question(draft: JobDraft) -> None:
    if draft.random.random() < 0.4:
        thought = draft.says("solver", draft.asked())
        draft.says("answerer", draft.output(thought), (thought,))
    else:
        draft.says("answerer", draft.asked())


def _translation(draft: JobDraft) -> None:
    for _ in range(draft.random.choice((2, 3, 4))):
        draft.says("translator", draft.asked() + 100)


def _travel(draft: JobDraft) -> None:
    before = draft.says("travel", draft.asked(), thread=0)
    for _ in range(3):
        before = draft.says("travel", draft.told(), (before,), thread=0)
    plan = draft.says("planner", draft.output(before) + 300, (before,))
    draft.says("guide", draft.output(plan), (plan,))


def _refactoring(draft: JobDraft) -> None:
    before = draft.says("coder", 1500 + draft.asked(), thread=0)
    for _ in range(draft.random.choice((1, 1, 2))):
        tested = draft.says("tester", draft.output(before), (before,), thread=1)
        if draft.random.random() < 0.5:
            return
        before = draft.says("coder", draft.output(tested), (tested,), thread=0)


@dataclass(frozen=True, slots=True)
class Application:
    """`jobs`: their number in Table I. `interactive`: a person waits."""

    jobs: int
    interactive: bool
    build: Callable[[JobDraft], None]


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


def outside_s(random: Random) -> float:
    """Draws the seconds in which a tool or a person works."""
    return min(MOST_OUTSIDE_S, random.lognormvariate(OUTSIDE_MU, OUTSIDE_SIGMA))


def draft_of(name: str, random: Random, lengths: Mapping[str, Sequence[int]]) -> JobDraft:
    """Draws a job of an application. `lengths`: of answers in tokens, by the roles' `answers`."""
    draft = JobDraft(random, lengths)
    APPLICATIONS[name].build(draft)
    return draft
