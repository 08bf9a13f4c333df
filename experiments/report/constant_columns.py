"""Finds columns of a page's tables that say the same of every system, and so tell a reader nothing about systems."""

from collections.abc import Iterator

from hmas.contracts.request import TaskType

LEAST_SYSTEMS = 3
# Why a line of figures may be the same for all systems.
REASONS = {
    "TTFT compliance": "at this load every system gives every first token in time",
    "ESG/s": "at this load every system ends every request in time",
    "Jain index of attainment": "the tenants' requests are alike, so a system that knows no tenants misses each alike",
    "Jain index of service tokens": (
        "where every run counts all that was served until its end, this is the index of what was offered, which all "
        "systems share; runs made since count what was served while requests were offered"
    ),
    "errors": "no request failed",
    "found in caches": "without prefix caches nothing is found, whatever the order",
    "of bound": "at this load every system ends nearly every job in time",
    "interactive": "at this load every system ends every interactive job in time",
    "wait of interactive calls": "at this load the engines have room, and hardly a call waits for others",
} | {task.value: "of the few requests of this type no system misses one, or each misses all" for task in TaskType}


def explained(page: str) -> str:
    """Returns a section that lists the page's constant lines with the reason for each, or nothing if there are none. A
    line without a reason is listed as unexplained."""
    places: dict[str, list[str]] = {}
    for section, name in constant_columns(page):
        places.setdefault(name, []).append(section)
    if not places:
        return ""
    rows = [
        f"- *{name}* ({'; '.join(found)}): {REASONS.get(name, '**unexplained**')}." for name, found in places.items()
    ]
    return "\n".join(["", "## The same for all systems", "", *rows]) + "\n"


def constant_columns(page: str) -> list[tuple[str, str]]:
    """Returns (section, name) of each constant line of figures: a column of a table with a row per system, or a row of
    one with a column per system. A table of fewer than `LEAST_SYSTEMS` systems is left out, and so is what was not
    measured."""
    found = []
    for section, rows in _tables(page):
        header, body = rows[0], rows[2:]
        if header[0] == "system":
            lines = {name: [row[i] for row in body] for i, name in enumerate(header) if i}
        elif set(header) & {"H-MAS (ours)", "hmas"}:
            lines = {row[0]: row[1:] for row in body}
        else:
            continue
        for name, values in lines.items():
            measured = [value for value in values if value not in ("-", "not measured", "")]
            if len(measured) >= LEAST_SYSTEMS and len(set(measured)) == 1:
                found.append((section, name))
    return found


def _tables(page: str) -> Iterator[tuple[str, list[list[str]]]]:
    section, table = "", list[list[str]]()
    for line in [*page.splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip().strip("|").split("|")])
            continue
        if len(table) > 2:
            yield section, table
        table = []
        if line.startswith("#"):
            section = line.lstrip("# ")
