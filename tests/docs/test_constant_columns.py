"""A column of a results page that says the same of every system says nothing: each is explained here, or gone."""

import re
from collections.abc import Iterator
from pathlib import Path

RESULTS = Path(__file__).parents[2] / "docs" / "results"
SYSTEM_COLUMNS = ("system", "variant", "scheduler", "Π_meta", "order")  # what names the system of a row
METRIC, OURS = "metric", "ours"  # of tables with a row per system and metric
# (page, column): why it may be constant over the systems.
EXPLAINED = {
    (
        "figure9.md",
        "throughput part",
    ): "every request finishes at last, and this part counts no delay; the page says so",
}


def tables(text: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yields the header and the rows of each table of a Markdown page."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        if len(lines) > 2 and all(set(cell) <= set("-: ") for cell in lines[1]):
            yield lines[0], lines[2:]


def constant_columns(text: str) -> set[str]:
    """Returns the columns, or the metrics, that have one value over the systems wherever a page compares three or more:
    in each table, and for each workload, window or load that stands before the system in its rows."""
    values: dict[str, dict[tuple[object, ...], list[str]]] = {}
    for number, (header, rows) in enumerate(tables(text)):
        system = next((place for place, name in enumerate(header) if name in SYSTEM_COLUMNS), None)
        if system is None:
            continue
        for row in rows:
            setting = (number, *row[:system])
            if METRIC in header and OURS in header:
                values.setdefault(row[header.index(METRIC)], {}).setdefault(setting, []).append(row[header.index(OURS)])
                continue
            for name, value in list(zip(header, row, strict=True))[system + 1 :]:
                values.setdefault(name, {}).setdefault(setting, []).append(value)
    compared = {name: [v for v in found.values() if len(v) >= 3] for name, found in values.items()}
    return {name for name, found in compared.items() if found and all(len(set(v)) == 1 for v in found)}


def test_the_check_finds_what_is_constant_in_every_table() -> None:
    first = "| system | a | b | c |\n|---|---|---|---|\n| x | 1 | 1 | 1 |\n| y | 1 | 1 | 2 |\n| z | 1 | 1 | 1 |\n"
    second = first.replace("| y | 1 | 1 |", "| y | 1 | 7 |")
    assert constant_columns(first) == {"a", "b"}
    assert constant_columns(first + "\n" + second) == {"a"}
    long = "| slice | system | metric | ours |\n|---|---|---|---|\n"
    long += "".join(f"| s | {system} | m | {value} |\n" for system, value in zip("xyz", "445", strict=True))
    assert constant_columns(long) == set()
    assert constant_columns(long.replace("5", "4")) == {"m"}
    assert constant_columns("| day | a |\n|---|---|\n| 1 | 1 |\n| 2 | 1 |\n| 3 | 1 |\n") == set()


def test_every_constant_column_is_explained_or_gone() -> None:
    found = {(page.name, name) for page in RESULTS.glob("*.md") for name in constant_columns(page.read_text())}
    assert found - EXPLAINED.keys() == set()
    assert EXPLAINED.keys() - found == set(), "these are no longer constant: take their explanations out"
