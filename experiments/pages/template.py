"""Renders Markdown pages from Jinja2 templates, which lie beside the code that fills them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


def render(template: Path, **values: object) -> str:
    """Renders a template file with `values`. Templates may use the filters `number`, which formats as f-strings do, and
    `percent`, and the function `table`. Raises UndefinedError if the template uses a value that is not given."""
    pages = Environment(
        loader=FileSystemLoader(template.parent), trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True,
        undefined=StrictUndefined,
    )  # fmt: skip
    pages.filters |= {"number": format, "percent": percent}
    pages.globals |= {"table": table}
    return pages.get_template(template.name).render(values)


def table(header: Sequence[object], rows: Iterable[Sequence[object]], align: str = "") -> str:
    """Returns a Markdown table without a final line break. `align` is the line below the header, by default `|---` per
    column."""
    lines = [header, *rows]
    text = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    return "\n".join([text[0], align or "|---" * len(header) + "|", *text[1:]])


def records(header: Sequence[str], rows: Iterable[Sequence[object]]) -> list[dict[str, object]]:
    """Returns the rows of a table as documents, each with what its columns say by their names."""
    return [dict(zip(header, row, strict=True)) for row in rows]


def percent(share: float) -> str:
    return f"{100 * share:.1f} %"
