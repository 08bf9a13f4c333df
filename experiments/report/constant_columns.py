"""Finds columns of a page's tables that say the same of every system, and so tell a reader nothing about systems."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

LEAST_SYSTEMS = 3
ON_TIME = ("goodput rate", "goodput", "on time")  # what a line that tells how many requests are on time is called
NEARLY_ALL = 0.98  # of the requests or jobs on time, from which systems differ by nothing but that


@dataclass(frozen=True, slots=True)
class ConstantLine:
    """A line of figures that are all `value`. `least_on_time`: the least share on time in the same table; None: the
    table does not tell."""

    section: str
    name: str
    value: str
    least_on_time: float | None

    @property
    def reason(self) -> str:
        """Why the figures are the same, as far as they tell; empty if they do not."""
        found = _share(self.value)
        if found == 0.0:
            return "no system has any"
        if found == 1.0:
            return "every system has all that there is"
        if self.least_on_time is not None and self.least_on_time >= NEARLY_ALL:
            return f"every system has at least {self.least_on_time:.1%} on time there, and all serve the same requests"
        return ""


def explained(page: str) -> str:
    """Returns a section that lists the page's constant lines with the reason for each, or nothing if there are none. A
    line without a reason is listed as unexplained."""
    places: dict[tuple[str, str], list[str]] = {}
    for line in constant_columns(page):
        reason = line.reason or f"**unexplained** ({line.value})"
        places.setdefault((line.name, reason), []).append(line.section)
    if not places:
        return ""
    rows = [f"- *{name}* ({'; '.join(found)}): {reason}." for (name, reason), found in places.items()]
    return "\n".join(["", "## The same for all systems", "", *rows]) + "\n"


def constant_columns(page: str) -> list[ConstantLine]:
    """Returns each constant line of figures: a column of a table with a row per system, or a row of one with a column
    per system. A table of fewer than `LEAST_SYSTEMS` systems is left out, and so is what was not measured."""
    found = []
    for section, rows in _tables(page):
        header, body = rows[0], rows[2:]
        if header[0] == "system":
            lines = {name: [row[i] for row in body] for i, name in enumerate(header) if i}
        elif set(header) & {"H-MAS (ours)", "hmas"}:
            lines = {row[0]: row[1:] for row in body}
        else:
            continue
        on_time = next((list(map(_share, lines[name])) for name in ON_TIME if name in lines), [])
        least = min((share for share in on_time if share is not None), default=None)
        for name, values in lines.items():
            measured = [value for value in values if value not in ("-", "not measured", "")]
            if len(measured) >= LEAST_SYSTEMS and len(set(measured)) == 1:
                found.append(ConstantLine(section, name, measured[0], least))
    return found


def _share(text: str) -> float | None:
    """Returns the figure that a cell begins with, a percentage as a share; None if it begins with none, or with a whole
    number other than 0, which counts something."""
    if text == "0":
        return 0.0
    if (found := re.match(r"(-?\d+(?:\.\d+)?)(\s*%)?", text)) is None or not ("." in found[1] or found[2]):
        return None
    return float(found[1]) / (100.0 if found[2] else 1.0)


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
