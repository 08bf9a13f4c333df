"""Every citation leads somewhere: a section of docs/design.md, or a place of a paper that docs/papers.md lists."""

import re
from collections.abc import Iterator, Mapping

import pytest

from tests.house.repository import ROOT, written

PAPERS = ("H-MAS", "Niyama", "Maestro", "MaaSO", "MFS")
_NUMBERS = r"(?P<numbers>\d+[a-z]?\b(?!\.\d)(?:(?:, | and | or | to |-)\d+[a-z]?\b(?!\.\d))*)"
_NAMED = re.compile(rf"\b(?P<kind>Eq\.|Table|Fig\.|Figures?|Alg\.|Algorithm) (?:{_NUMBERS}|(?P<roman>[IVX]+\b))")
_SECTION = re.compile(r"§(?P<section>\d+(?:\.\d+)*|[IVX]+(?:-[A-Z])?)")
_APPENDIX = re.compile(r"\b(?:App\.|Appendix) (?P<appendix>[A-F](?:\.\d+)?\b)")
_PLACE = re.compile("|".join(p.pattern for p in (_NAMED, _SECTION, _APPENDIX)))
_SOURCE = re.compile(rf"\b(?P<paper>{'|'.join(PAPERS)})\b|\bDESIGN (?P<design>§[\d.]*\d(?:, §[\d.]*\d)*)")
_KINDS = {"Fig.": "Figure", "Figures": "Figure", "Alg.": "Algorithm"}


def places(text: str) -> Iterator[tuple[int, str]]:
    """(offset, place) of each equation, table, figure, algorithm, section and appendix that `text` names."""
    for found in _PLACE.finditer(text):
        if section := found["section"]:
            yield found.start(), f"§{section}"
        elif appendix := found["appendix"]:
            yield found.start(), f"App. {appendix}"
        else:
            kind = _KINDS.get(found["kind"], found["kind"])
            for number in _spelled_out(found["numbers"] or found["roman"]):
                yield found.start(), f"{kind} {number}"


def _spelled_out(numbers: str) -> list[str]:
    """'1 to 3' names 1, 2 and 3; '4 and 5' the two."""
    if span := re.fullmatch(r"(\d+)(?: to |-)(\d+)", numbers):
        return [str(n) for n in range(int(span[1]), int(span[2]) + 1)]
    return re.split(r", | and | or | to |-", numbers)


def citations(text: str) -> Iterator[tuple[str, str]]:
    """(source, place) of each citation. One that names no paper is of the paper named last before it, else H-MAS's."""
    sources = list(_SOURCE.finditer(text))
    of_design = [found for found in sources if found["design"]]
    for found in of_design:
        yield from (("DESIGN", section) for section in found["design"].split(", "))
    for offset, place in places(text):
        if not any(found.start() < offset < found.end() for found in of_design):
            named = [found["paper"] for found in sources if found["paper"] and found.start() < offset]
            yield (named or ["H-MAS"])[-1], place


def listed() -> Mapping[str, set[str]]:
    """What can be cited: the numbered sections of the design, and the first column of each paper's table."""
    design = (ROOT / "docs/design.md").read_text()
    found = {"DESIGN": {f"§{number}" for number in re.findall(r"^#+ (\d+(?:\.\d+)*)\.? ", design, re.MULTILINE)}}
    pages = re.split(r"^## ", (ROOT / "docs/papers.md").read_text(), flags=re.MULTILINE)
    for page in pages[1:]:
        rows = re.findall(r"^\| ([^|]+) \|", page, re.MULTILINE)
        found[page.split()[0].rstrip(":")] = {place for row in rows for _, place in places(row)}
    return found


def known(place: str, places: set[str]) -> bool:
    """A place is known with all that is within it: App. C where App. C.2 is listed."""
    return any(p == place or p.startswith(f"{place}.") or p.startswith(f"{place}-") for p in places)


def test_every_citation_leads_somewhere() -> None:
    places = listed()
    lost = [
        f"{path}: {source} {place}"
        for path, text in written(".py", ".md", ".yaml", ".toml", ".proto")
        if path not in ("docs/papers.md", "tests/docs/test_citations.py")
        for source, place in citations(text)
        if not known(place, places.get(source, set()))
    ]
    assert lost == [], "\n".join(lost)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_paper_is_listed(paper: str) -> None:
    assert paper in listed()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("the fence (DESIGN §3.2, §6)", [("DESIGN", "§3.2"), ("DESIGN", "§6")]),
        ("(H-MAS Eq. 2 and 4, §3.5)", [("H-MAS", "Eq. 2"), ("H-MAS", "Eq. 4"), ("H-MAS", "§3.5")]),
        ("Niyama's order (Eq. 1 to 3)", [("Niyama", "Eq. 1"), ("Niyama", "Eq. 2"), ("Niyama", "Eq. 3")]),
        ("Table 3, Fig. 7b, 9 and 10", [("H-MAS", f"{p}") for p in ("Table 3", "Figure 7b", "Figure 9", "Figure 10")]),
        ("(MaaSO §IV-B, Eq. 1)", [("MaaSO", "§IV-B"), ("MaaSO", "Eq. 1")]),
        ("Maestro Table VI; then H-MAS App. E.5", [("Maestro", "Table VI"), ("H-MAS", "App. E.5")]),
    ],
)
def test_citations_are_read(text: str, found: list[tuple[str, str]]) -> None:
    assert list(citations(text)) == found


def test_a_wrong_citation_is_found() -> None:
    places = listed()
    assert not known("§99", places["DESIGN"])
    assert not known("Eq. 99", places["H-MAS"])
    assert known("App. C", places["H-MAS"])


def test_every_adr_named_exists() -> None:
    numbers = {int(path.name[:4]) for path in (ROOT / "docs/adr").glob("[0-9]*.md")}
    named = {(path, int(n)) for path, text in written(".py", ".md") for n in re.findall(r"\bADR (\d+)\b", text)}
    assert {(path, n) for path, n in named if n not in numbers} == set()
    assert numbers == set(range(1, len(numbers) + 1))
    assert len(named) > 5


def test_the_glossary_points_to_sections_of_the_design() -> None:
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| ([\d.]+) \|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert [word for word, section in rows if f"§{section}" not in listed()["DESIGN"]] == []
    assert len(rows) > 40
