"""The `rules` backend: explicit patterns give the task type; the type and the prompt's length give the output's length.

Trained models are compared with it (H-MAS Table 2), and it serves where there is no model. Its lengths are medians and
90 % quantiles of responses that language models wrote to labelled prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from hmas.contracts.request import TaskType
from hmas.perception.agent.backend import Estimate, PromptView
from hmas.perception.agent.features import stated_length
from hmas.perception.agent.pattern import Pattern

VERSION = "rules-1"
_HEAD_CHARS, _TAIL_CHARS = 320, 200  # an instruction stands before or after its document, not inside
_STATED_SLACK = 1.4  # 90 % quantile of the answers' length over the length that the prompt asked for
_UNTYPED_CONFIDENCE = 0.2
EXPLICIT = 0.9  # least confidence of a rule whose words name the type explicitly


@dataclass(frozen=True, slots=True)
class _Rule:
    task: TaskType
    pattern: Pattern
    confidence: float


def _rule(task: TaskType, confidence: float, *alternatives: str) -> _Rule:
    return _Rule(task, Pattern(*alternatives), confidence)


# The first rule that matches wins, so explicit rules come before those that are only likely.
_RULES: tuple[_Rule, ...] = (
    _rule(
        TaskType.DIALOGUE,
        0.95,
        r"(?:^|\n)<user|human|customer>\s?:.*\n<assistant|ai|agent|bot>\s?:",
        r"(?:^|\n)<user>\s?:.*\n<assistant:>\s*$",
        r"\b<role>[- ]?<play>\b",
        r"\b<pretend|imagine> <to be|you|yourself>\b",
        r"^<you are >(?!.{0,40}(?:novelist|writer))",
        r"^<act|respond|speak|answer|assume the role|take the role>\b.{0,12}\b<as|of>\b",
        r"<扮演>",
    ),
    _rule(
        TaskType.ESSAY_GENERATION,
        0.9,
        r"^.{0,100}\b<essay>\b",
        r"\b<do you agree or disagree>\b",
        r"<specific reasons and>",
    ),
    _rule(
        TaskType.QA, 0.9, r"\b(?:answer|response to) (?:to )?<the following question>\b", r"\n\s*\[?<question>\]?\s*:"
    ),
    _rule(TaskType.TRANSLATION, 0.95, r"\b<translat>(?:e|ion|ing)\b", r"<翻译>", r"<译成>"),
    _rule(
        TaskType.SUMMARIZATION,
        0.9,
        r"\b<summar>(?:y|ize|ise|ization|izing)\b",
        r"\b<tldr|tl;dr>\b",
        r"<总结>",
        r"<摘要>",
        r"<概括>",
    ),
    _rule(
        TaskType.PARAPHRASING,
        0.9,
        r"\b<paraphras>",
        r"\b<rewrite|rephrase|reword>\b",
        r"\b<proofread>\b",
        r"\b<in your own words>\b",
        r"<改写>",
        r"<润色>",
    ),
    _rule(
        TaskType.EXTRACTION,
        0.9,
        r"\b<extract>\b",
        r"\b<named entit>",
        r"\b<identify|find|list> <all|the|every>.{0,40}\b<in|from> <the|this> <following|text|passage|sentence>",
        r"<提取>",
        r"<抽取>",
    ),
    _rule(
        TaskType.LETTER_DRAFTING,
        0.9,
        r"\b<write|draft|compose|create>\b.{0,80}\b<cover letter|letter|email|e-mail|memo>\b",
        r"<写一封|写封>",
        r"<邮件模板>",
    ),
    _rule(TaskType.ESSAY_GENERATION, 0.8, r"\b<essay>\b", r"<作文>", r"<议论文>"),
    _rule(
        TaskType.CODE_GENERATION,
        0.9,
        r"<```>",
        r"(?:^|\n)\s*<def |class |import |#include|public class|public static|function |select >",
        r"(?:^|\n)\s*<from >\w+< import>",
        r"\b<write|create|implement|develop|generate|design|build|debug|fix|refactor|optimise|optimize|make|give|show>"
        r"\b.{0,60}\b<function|program|script|code|class|method|query|regex|algorithm|api|app|component|html|css|sql"
        r"|dockerfile>\b",
        r"\b<python|javascript|typescript|java|c++|c#|golang|rust|sql|bash|html|css|react|kotlin|ruby|php|matlab>\b",
        r"<代码>",
        r"<编程>",
    ),
    _rule(
        TaskType.MATH_REASONING,
        0.85,
        r"<\>(?:frac|sqrt|sum|int|mathbb|begin)\b",
        r"<$>[^$]{3,}\$",
        r"\b<prove|solve|evaluate|simplify>\b.{0,60}[=^\d]",
        r"\b<how ><many|much|far|long|old|tall|fast>\b.{0,160}<?>",
        r"\d.{0,400}\b<what is|what was> <the|his|her|their> "
        r"<total|sum|average|difference|percentage|cost|price|probability|number>\b",
        r"\b<equation>\b",
        r"<证明>",
        r"<求解>",
    ),
    _rule(
        TaskType.RESEARCH_AND_COMMUNICATION,
        0.8,
        r"\b<research>\b.{0,60}\b<report|paper|review|on|into>\b",
        r"\b<literature review>\b",
        r"\b<market|industry> <analysis|research|report>\b",
        r"\b<send|forward|reply to|schedule|reschedule|cancel|delete|move|plot|check>\b.{0,80}"
        r"\b<email|emails|e-mail|e-mails|meeting|meetings|calendar|crm|customer|customers|visit|visits|users|task"
        r"|board>\b",
        r"<研究>",
        r"<调研>",
        r"<分析>.{0,30}<报告>",
    ),
    _rule(
        TaskType.LONG_FORM_GENERATION,
        0.85,
        r"\b<story|novel|screenplay|chapter|blog post|article|speech|poem|lyrics>\b",
        r"\b<fan fic|fanfic>\w*\b",
        r"\b<continuation>\b",
        r"\b<guide|manual|tutorial|report|handbook|specification|business plan|curriculum>\b",
        r"<小说>",
        r"<故事>",
        r"<文章>",
        r"<剧本>",
    ),
    _rule(
        TaskType.QA,
        0.75,
        r"^\s*<who|whom|whose|what|when|where|which|why|how|is|are|was|were|do|does|did|can|could|should|will|would|has"
        r"|have>\b",
        r"<?>\s*$",
        r"<？>\s*$",
        r"<什么>",
        r"<为什么>",
        r"<如何>",
    ),
    _rule(
        TaskType.INSTRUCTION_FOLLOWING,
        0.5,
        r"^\s*(?:please\s+)?<write|create|generate|make|give|list|explain|describe|suggest|provide|come up|classify"
        r"|name|design|tell|compare|help|convert|turn|choose|rank|brainstorm|propose|develop|draft|outline|produce|use"
        r"|fill>\b",
    ),
)


@dataclass(frozen=True, slots=True)
class _Length:
    """The output length of a task type, in tokens: the median is `base + per_prompt * prompt tokens`, and the 90 %
    quantile is `spread` times that."""

    base: float
    per_prompt: float
    spread: float


_LENGTHS: dict[TaskType, _Length] = {
    TaskType.QA: _Length(250.0, 0.1, 4.0),
    TaskType.DIALOGUE: _Length(80.0, 0.05, 2.2),
    TaskType.TRANSLATION: _Length(5.0, 1.0, 1.8),
    TaskType.EXTRACTION: _Length(30.0, 0.05, 3.0),
    TaskType.PARAPHRASING: _Length(10.0, 0.6, 2.5),
    TaskType.CODE_GENERATION: _Length(120.0, 0.4, 4.0),
    TaskType.INSTRUCTION_FOLLOWING: _Length(280.0, 0.1, 3.0),
    TaskType.SUMMARIZATION: _Length(60.0, 0.1, 3.0),
    TaskType.LETTER_DRAFTING: _Length(280.0, 0.1, 1.5),
    TaskType.MATH_REASONING: _Length(250.0, 0.5, 4.0),
    TaskType.ESSAY_GENERATION: _Length(640.0, 0.1, 1.6),
    TaskType.LONG_FORM_GENERATION: _Length(1150.0, 0.05, 1.7),
    TaskType.RESEARCH_AND_COMMUNICATION: _Length(300.0, 0.2, 8.0),
    TaskType.UNKNOWN: _Length(200.0, 0.1, 5.0),
}


class RulesBackend:
    """Estimates prompts by rules, without state, in about a tenth of a millisecond each."""

    version = VERSION

    def estimate(self, prompts: Sequence[PromptView]) -> list[Estimate | None]:
        return [_estimate(prompt) for prompt in prompts]


def instruction(text: str) -> str:
    """Returns the head and the tail of a prompt, where instructions stand, or all of a short one."""
    text = text.strip()
    if len(text) <= _HEAD_CHARS + _TAIL_CHARS:
        return text
    return f"{text[:_HEAD_CHARS]}\n{text[-_TAIL_CHARS:]}"


def tag(text: str) -> tuple[TaskType, float]:
    """Returns the task type and its confidence; the type is `unknown` if no rule matches.

    An explicit word in the first paragraph outweighs any later one, which may belong to a document.
    """
    part = instruction(text)
    rule = _explicit(part) or _first(_RULES, part)
    return (rule.task, rule.confidence) if rule is not None else (TaskType.UNKNOWN, _UNTYPED_CONFIDENCE)


def named(text: str) -> TaskType | None:
    """Returns the task type that an explicit word of the first paragraph names, or None."""
    rule = _explicit(instruction(text))
    return rule.task if rule is not None else None


def _explicit(part: str) -> _Rule | None:
    return _first(_NAMING, part.partition("\n\n")[0])


def _first(rules: Sequence[_Rule], part: str) -> _Rule | None:
    lower = part.lower()
    return next((rule for rule in rules if rule.pattern.start(part, lower) is not None), None)


_NAMING = tuple(rule for rule in _RULES if rule.confidence >= EXPLICIT)
TASKS = tuple(TaskType)
MATCHES = 2 * len(_RULES) + len(TASKS)


def matches(text: str) -> list[float]:
    """Returns `MATCHES` zeros and ones, as features for a model: which rules match, which of them match in the first
    paragraph, and the task type that they give together.
    """
    part = instruction(text)
    lower, lead = part.lower(), len(part.partition("\n\n")[0])
    starts = [rule.pattern.start(part, lower) for rule in _RULES]
    found = [start is not None for start in starts]
    leading = [start is not None and start <= lead for start in starts]
    explicit = (r for r, leads in zip(_RULES, leading, strict=True) if leads and r.confidence >= EXPLICIT)
    rule = next(explicit, None) or next((r for r, hit in zip(_RULES, found, strict=True) if hit), None)
    task = rule.task if rule is not None else TaskType.UNKNOWN
    return [*map(float, found), *map(float, leading), *(float(t is task) for t in TASKS)]


def _estimate(prompt: PromptView) -> Estimate:
    task, confidence = tag(prompt.text)
    stated = stated_length(instruction(prompt.text))
    if stated > 0.0:
        return Estimate(task, confidence, max(1.0, stated), max(1.0, stated) * _STATED_SLACK)
    length = _LENGTHS[task]
    median = length.base + length.per_prompt * prompt.prompt_tokens
    return Estimate(task, confidence, median, median * length.spread)
