"""Two sessions of coding agents, turn by turn, as they go over the wire: each turn is one streamed request, which
brings the whole session so far. The shapes are those of the agents (the fields, the blocks with `cache_control`, calls
of tools and their results); the task is one of our own, and so is every word."""

import json
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

Body = dict[str, Any]
HERE = Path(__file__).parent
# What the agent had been asked, did and saw: a call or several at once, each with its result, then what it said.
TASK = "The test test_total in tests/test_cart.py fails. Find out why, mend it, and tell me in one sentence."
LISTING = "cart.py\npyproject.toml\ntests/test_cart.py\n"
CART = '''"""A shopping cart."""


class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, price, count=1):
        self.items.append((name, price, count))

    def total(self):
        return sum(price for _, price, _ in self.items)
'''
TEST = """from cart import Cart


def test_total():
    cart = Cart()
    cart.add("tea", 3, count=2)
    cart.add("cup", 5)
    assert cart.total() == 11
"""
PATCH = """*** Begin Patch
*** Update File: cart.py
@@
-        return sum(price for _, price, _ in self.items)
+        return sum(price * count for _, price, count in self.items)
*** End Patch
"""
FAILS = "Exit code: 1\nE       assert 8 == 11\n1 failed in 0.02s\n"
PASSES = "Exit code: 0\n1 passed in 0.01s\n"
DONE = "`Cart.total` left out the counts, so that two teas were paid once; it multiplies by them now."
THANKS = "Thank you. Is there anything else in that file that counts wrongly?"


# --- the responses API ---


def responses() -> Iterator[Body]:
    """As Codex sends them to `/v1/responses`: nothing is stored, so the items of earlier turns come again."""
    base = json.loads((HERE / "coding_agent.json").read_text())
    base["input"][-1]["content"] = [{"type": "input_text", "text": TASK}]
    turns = (
        _called({"call_1": ("exec_command", {"cmd": "ls -1"})}, {"call_1": LISTING}, "I look at the files first."),
        _called(
            {
                "call_2": ("exec_command", {"cmd": "cat cart.py", "max_output_tokens": 6000}),
                "call_3": ("exec_command", {"cmd": "cat tests/test_cart.py", "max_output_tokens": 6000}),
            },
            {"call_2": CART, "call_3": TEST},
        ),
        _called({"call_4": ("exec_command", {"cmd": "python -m pytest -q tests"})}, {"call_4": FAILS}),
        _called({"call_5": ("exec_command", {"cmd": f"apply_patch <<'EOF'\n{PATCH}EOF"})}, {"call_5": "Success."}),
        _called({"call_6": ("exec_command", {"cmd": "python -m pytest -q tests"})}, {"call_6": PASSES}),
        [_said(DONE), {"type": "message", "role": "user", "content": [{"type": "input_text", "text": THANKS}]}],
    )
    yield deepcopy(base)
    for items in turns:
        base["input"] += items
        yield deepcopy(base)


def _said(text: str) -> Body:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _called(calls: dict[str, tuple[str, Body]], results: dict[str, str], said: str = "") -> list[Body]:
    return [
        *([_said(said)] if said else ()),
        *(
            {"type": "function_call", "name": name, "arguments": json.dumps(arguments), "call_id": call}
            for call, (name, arguments) in calls.items()
        ),
        *({"type": "function_call_output", "call_id": call, "output": output} for call, output in results.items()),
    ]


# --- the messages API ---

ENDS: Body = {"cache_control": {"type": "ephemeral"}}  # up to here a provider may keep the prompt


def messages() -> Iterator[Body]:
    """As Claude Code sends them to `/v1/messages`: the marks of the cache move to the last message at each turn."""
    listing = _use(0, "Glob", {"pattern": "**/*.py", "path": "/home/ada/shop"})
    read = _use(1, "Read", {"file_path": "/home/ada/shop/cart.py"})
    bash = _use(2, "Bash", {"command": "python -m pytest -q tests", "description": "Run the tests", "timeout": 120000})
    change = {"old_string": "price for _, price, _ in", "new_string": "price * count for _, price, count in"}
    edit = _use(3, "Edit", {"file_path": "/home/ada/shop/cart.py", **change, "replace_all": False})
    again = _use(4, "Bash", {"command": "python -m pytest -q tests", "description": "Run the tests again"})
    reminder = "<system-reminder>\nThe list of tasks is empty. Say nothing of that to the user.\n</system-reminder>"
    turns = (
        [_text(reminder), _text(TASK)],
        [_text("I look for the files and read the cart."), listing, read],
        [_result(listing, LISTING), _result(read, _numbered(CART))],
        [bash],
        [_result(bash, [_text(FAILS)], is_error=True)],
        [_text("The counts are missing."), edit],
        [_result(edit, "The file has been updated."), _text(reminder)],
        [again],
        [_result(again, PASSES)],
        [_text(DONE)],
        [_text(THANKS)],
    )
    for number in range(1, len(turns) + 1, 2):
        told: list[Body] = [
            {"role": ("user", "assistant")[n % 2], "content": deepcopy(turns[n])} for n in range(number)
        ]
        told[-1]["content"][-1].update(ENDS)
        yield {
            "model": "MODEL", "max_tokens": 32000, "stream": True, "temperature": 1,
            "metadata": {"user_id": "user_0_session_0"},
            "system": [
                _text("x-agent-version: 1.0.0; entrypoint=cli"),
                _text("You are an agent that helps with software, in a terminal.") | ENDS,
                _text(RULES) | ENDS,
            ],
            "tools": TOOLS, "messages": told,
        }  # fmt: skip


def _text(text: str) -> Body:
    return {"type": "text", "text": text}


def _use(number: int, name: str, given: Body) -> Body:
    return {"type": "tool_use", "id": f"toolu_{number:04d}", "name": name, "input": given}


def _result(call: Body, content: str | list[Body], is_error: bool = False) -> Body:
    return {"type": "tool_result", "tool_use_id": call["id"], "content": content} | (
        {"is_error": True} if is_error else {}
    )


def _numbered(text: str) -> str:
    return "".join(f"{n:>6}\t{line}\n" for n, line in enumerate(text.splitlines(), 1))


def _tool(name: str, told: str, required: dict[str, str], /, **optional: Any) -> Body:
    properties = {key: {"type": "string", "description": text} for key, text in required.items()} | optional
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "properties": properties}
    return {
        "name": name, "description": told,
        "input_schema": schema | {"required": list(required), "additionalProperties": False},
    }  # fmt: skip


RULES = """Answer in few words. Read a file before you change it, and run its tests after you did. Never commit unless
you are asked to. A command that changes what is not yours needs the user's yes first.

# Where you are
Working directory: /home/ada/shop
Is a git repository: no
Platform: linux
""" + "\n".join(f"- Rule {n}: leave what you do not understand as it is, and say so." for n in range(1, 41))
TOOLS = [
    _tool("Bash", "Runs a command in a shell that stays open, and returns what it printed.",
          {"command": "The command"}, timeout={"type": "number", "description": "Most milliseconds"},
          description={"type": "string", "description": "What it does, in five to ten words"},
          run_in_background={"type": "boolean"}),
    _tool("Read", "Reads a file from the disk, with the numbers of its lines.", {"file_path": "An absolute path"},
          offset={"type": "number"}, limit={"type": "number"}),
    _tool("Edit", "Puts one text in the place of another in a file, exactly.",
          {"file_path": "An absolute path", "old_string": "The text to go", "new_string": "The text in its place"},
          replace_all={"type": "boolean", "default": False, "description": "At all places"}),
    _tool("Glob", "Finds files whose names fit a pattern, the newest first.", {"pattern": "Such as **/*.py"},
          path={"type": "string"}),
    _tool("TodoWrite", "Keeps a list of what is to be done.", {}, todos={"type": "array", "items": {
        "type": "object", "required": ["content", "status"], "additionalProperties": False, "properties": {
            "content": {"type": "string", "minLength": 1},
            "status": {"type": "string", "enum": ["pending", "in_progress", "completed"]}}}}),
]  # fmt: skip
