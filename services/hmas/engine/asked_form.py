"""What form of answer a request asks for: a call of a tool, JSON that fits a schema, log probabilities.

The fields, and the errors for wrong ones, are those of vLLM's OpenAI API.
"""

from dataclasses import dataclass
from typing import Any

import orjson

from hmas.contracts.registry import CHAT_PATH, COMPLETIONS_PATH
from hmas.engine.smallest_json import BadSchema, smallest_json
from hmas.engine.words import word
from hmas.laws.tokens import BYTES_PER_TOKEN

MAX_LOGPROBS = 20  # alternatives of a token, vLLM's --max-logprobs


class BadForm(ValueError):
    """A request asks for a form that it cannot get; `param` names the field at fault."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


@dataclass(frozen=True, slots=True)
class AnswerForm:
    """The form of one answer: its text, None for the usual words; the tool that is called with this text as arguments,
    "" for none, and whether the client named it; how many alternatives of each token are told, None for no log
    probabilities."""

    text: str | None = None
    tool: str = ""
    named: bool = False
    logprobs: int | None = None

    @property
    def tokens(self) -> int:
        """The tokens of the text, 0 for the usual words."""
        return -(-len(self.text or "") // BYTES_PER_TOKEN)

    def piece(self, index: int) -> str:
        """Returns the text of token number `index`."""
        if self.text is None:
            return word(index).decode()
        return self.text[index * BYTES_PER_TOKEN : (index + 1) * BYTES_PER_TOKEN]


def asked_form(body: dict[str, Any], path: str) -> AnswerForm | None:
    """Returns the form that a body asks for, None for the usual one. Raises BadForm."""
    if path not in (CHAT_PATH, COMPLETIONS_PATH):
        return None
    logprobs = _logprobs(body, path)
    if path == CHAT_PATH and (call := _call(body)) is not None:
        name, schema, named = call
        return AnswerForm(_fitting(schema, "tools"), name, named, logprobs)
    text = _formatted(body.get("response_format"))
    return None if text is None and logprobs is None else AnswerForm(text, logprobs=logprobs)


def _call(body: dict[str, Any]) -> tuple[str, object, bool] | None:
    """Returns the tool that must be called, with the schema of its arguments and whether it was named; None if none."""
    choice = body.get("tool_choice")
    if choice in (None, "none", "auto"):
        return None
    tools = body.get("tools")
    if not isinstance(tools, list) or not tools:
        raise BadForm("When using `tool_choice`, `tools` must be set.", "tool_choice")
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict) and tool.get("type") == "function"]
    by_name = {each["name"]: each for each in functions if isinstance(each, dict) and isinstance(each.get("name"), str)}
    if len(by_name) != len(tools):
        raise BadForm("each tool must be a function with a name of its own", "tools")
    if choice == "required":
        function = next(iter(by_name.values()))
    else:
        wanted = choice.get("function") if isinstance(choice, dict) else None
        name = wanted.get("name") if isinstance(wanted, dict) else None
        if not isinstance(name, str) or name not in by_name:
            message = "The tool specified in `tool_choice` does not match any of the specified `tools`"
            raise BadForm(f"{message}: none, auto, required, or a function that is among them", "tool_choice")
        function = by_name[name]
    return function["name"], function.get("parameters") or {"type": "object"}, choice != "required"


def _formatted(asked: object) -> str | None:
    """Returns the text that a `response_format` asks for; None if it leaves it open."""
    if asked is None or asked == {}:
        return None
    kind = asked.get("type") if isinstance(asked, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return "{}"
    if kind != "json_schema" or not isinstance(asked, dict):
        raise BadForm(
            "response_format must be an object with the type text, json_object or json_schema", "response_format"
        )
    given = asked.get("json_schema")
    schema = given.get("schema") if isinstance(given, dict) else None
    if schema is None:
        raise BadForm("response_format.json_schema.schema must be a JSON schema", "response_format")
    return _fitting(schema, "response_format")


def _fitting(schema: object, param: str) -> str:
    try:
        return orjson.dumps(smallest_json(schema)).decode()
    except (BadSchema, orjson.JSONEncodeError) as bad:
        raise BadForm(f"the emulated engine cannot answer this schema: {bad}", param) from None


def _logprobs(body: dict[str, Any], path: str) -> int | None:
    """Returns how many alternatives of each token a body asks for, None if it asks for no log probabilities."""
    asked = body.get("logprobs")
    if path == COMPLETIONS_PATH:
        number, param = asked, "logprobs"
        if asked is None or asked is False:
            return None
    else:
        number, param = body.get("top_logprobs") or 0, "top_logprobs"
        if not asked:
            if number:
                raise BadForm("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
            return None
    if not isinstance(number, int) or not 0 <= number <= MAX_LOGPROBS:
        raise BadForm(f"{param} must be a number from 0 to {MAX_LOGPROBS}", param)
    return int(number)
