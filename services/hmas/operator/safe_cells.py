"""Cells of the tables that commands print."""

from collections.abc import Iterable, Iterator

from rich.text import Text

from hmas.runtime.harmless_text import harmless


def safe_cells(row: Iterable[str | Text]) -> Iterator[Text]:
    """Yields the cells of a row. A string may hold names that others chose: it is no markup, and steers no
    terminal."""
    return (cell if isinstance(cell, Text) else Text(harmless(cell)) for cell in row)
