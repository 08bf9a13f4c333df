"""Writes what a study found: its page, its rows and its further files."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.pages.template import render
from experiments.report.constant_columns import explained
from experiments.study import Finished, Options, Study


def write(study: Study[Any, Any], options: Options, found: Finished) -> list[Path]:
    """Writes the page of a study and its files into `options.out`, and returns their paths, that of the page first."""
    rows = study.rows(options, found)
    files: dict[str, Any] = {}
    if study.values is not None:
        values = {"goals": [goal.line for goal in study.goals(rows)], **study.values(rows, options, found)}
        text = render(study.page, **values)
        files = {f"{study.name}.md": f"{text.rstrip()}\n{explained(text)}" if study.explain else text}
        files[f"{study.name}.json"] = [study.plain(row) for row in rows]
    return put(files | study.also(rows, options, found), options.out, study.name)


def put(files: Mapping[str, Any], out: Path, command: str) -> list[Path]:
    """Writes files by name into `out`: pages, with a last line that names the command of which they are, and data as
    JSON; nothing where that is None. Returns the paths."""
    out.mkdir(parents=True, exist_ok=True)
    files = {name: body for name, body in files.items() if body is not None}
    for name, body in files.items():
        if name.endswith(".md"):
            body = f"{body.rstrip()}\n\n<!-- Written by `python -m experiments {command}`; do not edit. -->\n"
        elif not isinstance(body, str):
            body = json.dumps(body, indent=1) + "\n"
        (out / name).write_text(body, encoding="utf-8")
    return [out / name for name in files]
