"""The code of docs/recipes.md, as somebody who copies it runs it."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "recipes.md"
MODEL = "Qwen/Qwen3-8B"
URL = "http://127.0.0.1:8000"


def section(heading: str) -> str:
    """The text under a heading."""
    (found,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return str(found)


def code(heading: str, language: str, url: str) -> str:
    """The first block of code in a language under a heading, with the mesh's own URL."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", section(heading), re.DOTALL | re.MULTILINE)
    assert URL in blocks[0], blocks
    return str(blocks[0]).replace(URL, url)
