"""Markdown pages from Jinja2 templates that lie beside the code which fills them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: object) -> str:
    """The text of a template file. `number` formats as f-strings do. Raises UndefinedError for a
    value that is not given."""
    pages = Environment(
        loader=FileSystemLoader(template.parent), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    pages.filters |= {"number": format, "percent": percent}
    pages.globals |= {"table": table}
    return pages.get_template(template.name).render(values)


def table(header: Sequence[object], rows: Iterable[Sequence[object]], align: str = "") -> str:
    """A Markdown table without a last line break. `align`: what rules each column off, `|---` by default."""
    lines = [header, *rows]
    text = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return "\n".join([text[0], align or "|---" * len(header) + "|", *text[1:]])


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
