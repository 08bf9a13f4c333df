"""The project's own small workflows: the shapes of `hmas_loadgen.workflows.applications` with texts in our own words,
so that nothing has to be fetched. Their lengths are ours too, of the size of what such agents say."""

from collections.abc import Mapping
from random import Random

from hmas.contracts.request import TaskType
from hmas.laws.tokens import BYTES_PER_TOKEN, MESSAGE_OVERHEAD
from hmas_loadgen.typed import typed_prompts
from hmas_loadgen.workflows.applications import APPLICATIONS, ROLES, TOOL_RESULTS, DraftCall, draft_of
from hmas_loadgen.workflows.recorded import ChatMessage
from hmas_loadgen.workflows.script import JobScript, ScriptCall

NAME = "typed"
LENGTHS: Mapping[str, tuple[int, ...]] = {
    "tau tool": (22, 30, 41, 55, 80),
    "tau text": (25, 40, 57, 90, 150),
    TOOL_RESULTS: (30, 80, 150, 300, 600),
    "Orchestrator": (60, 120, 180, 260, 400),
    "WebSurfer": (80, 150, 220, 300, 420),
    "Assistant": (60, 120, 200, 320, 500),
    "Verification_Expert": (50, 90, 150, 240, 350),
    "DataAnalysis_Expert": (70, 130, 200, 300, 450),
    "PythonDebugging_Expert": (50, 110, 180, 280, 420),
    "EssayGeneration": (300, 450, 600, 800, 1000),
    "MathReasoning": (60, 90, 120, 180, 250),
    "QA": (10, 25, 50, 110, 250),
    "Translation": (40, 70, 120, 200, 320),
    "CodeGeneration": (60, 100, 160, 240, 400),
}
TASKS: Mapping[str, TaskType] = {
    "tau tool": TaskType.EXTRACTION,
    "tau text": TaskType.DIALOGUE,
    "WebSurfer": TaskType.SUMMARIZATION,
    "EssayGeneration": TaskType.ESSAY_GENERATION,
    "MathReasoning": TaskType.MATH_REASONING,
    "QA": TaskType.QA,
    "Translation": TaskType.TRANSLATION,
    "CodeGeneration": TaskType.CODE_GENERATION,
    "PythonDebugging_Expert": TaskType.CODE_GENERATION,
}  # what a role's answers are like; of the others, whatever fits their lengths
QUESTION_TOKENS = 40


def typed_script(random: Random) -> JobScript:
    """Draws a job by the shares of Maestro's Table I. All its agents have the person's question as their first message
    of a user."""
    name = random.choices(list(APPLICATIONS), [each.jobs for each in APPLICATIONS.values()])[0]
    draft = draft_of(name, random, LENGTHS)
    number = f"Case {random.randrange(10**12):012d}. "  # no two jobs ask the same
    question = _message("user", QUESTION_TOKENS, random, number)
    said: dict[int, list[ChatMessage]] = {}
    calls = []
    for call in draft.calls:
        history = said.setdefault(call.thread, [_system(name, call.role), question])
        history.append(_asked(call, random))
        task = TASKS.get(ROLES[call.role].answers)
        calls.append(ScriptCall(tuple(history), call.output_tokens, call.after, call.outside_s, task))
        history.append(_message("assistant", call.output_tokens, random))
    return JobScript(name, tuple(calls))


def _system(application: str, role: str) -> ChatMessage:
    """Returns the system prompt of an agent, the same in all jobs of its application."""
    return _message("system", ROLES[role].system_tokens, Random(f"{application} {role}"))


def _asked(call: DraftCall, random: Random) -> ChatMessage:
    tokens, task = max(5, call.added_tokens), TASKS.get(ROLES[call.role].answers, TaskType.QA)
    text = typed_prompts().text(task, tokens - MESSAGE_OVERHEAD, call.output_tokens, random)
    return {"role": "user", "content": text}


def _message(role: str, tokens: int, random: Random, opening: str = "") -> ChatMessage:
    size = max(1, tokens - MESSAGE_OVERHEAD) * BYTES_PER_TOKEN - len(opening)
    return {"role": role, "content": opening + typed_prompts().passage(size, random)}
