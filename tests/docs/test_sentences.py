"""No sentence of a page is longer than its readers can hold: at most 45 words."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.repository import ROOT

MOST_WORDS = 45
PAGES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "docs/adr/*.md", "docs/results/*.md")  # docs/lab keeps old words

_CODE_BLOCK = re.compile(r"^([ ]*)(```+|~~~+).*?^\1\2[ ]*$", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"</?[a-z][^>]*>")
_ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+")
_END = re.compile(r"""(?P<word>\S*?)(?P<mark>[.!?]+)["')\]*_]*\s+(?=["'(\[*_]*(?:[^\sa-z]|[a-z]+[A-Z]))""")
_NO_ENDS = frozenset(("e.g", "i.e", "cf", "vs", "Eq", "Fig", "Figs", "App", "Alg"))  # a mark after these ends nothing


def blocks(page: str) -> Iterator[tuple[str, bool]]:
    """(text, whether it is a table's cell) of each paragraph, heading, list item and cell of a Markdown page."""
    page = _COMMENT.sub("", _CODE_BLOCK.sub("\n", page))
    page = _CODE.sub("Code", page)
    page = _TAG.sub(" ", _LINK.sub(r"\1", _IMAGE.sub(r"\n\n\1\n\n", page)))
    paragraph: list[str] = []
    for line in [*page.splitlines(), ""]:
        line = re.sub(r"^\s*(?:> ?)+", "", line)
        alone = not line.strip() or line.lstrip().startswith(("#", "|"))
        if (alone or _ITEM.match(line)) and paragraph:
            yield " ".join(paragraph), False
            paragraph = []
        if line.lstrip().startswith("|"):
            yield from ((cell.strip(), True) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|")))
        elif alone:
            yield line.strip("# "), False
        else:
            item = _ITEM.match(line)
            paragraph.append(line[item.end() if item else 0 :].strip())


def sentences(text: str) -> Iterator[str]:
    """The sentences of one block: each ends with an end mark before a word that begins with no small letter, or that is
    a name such as vLLM."""
    begin = 0
    for end in _END.finditer(text):
        if end["word"].lstrip("(") not in _NO_ENDS:
            yield text[begin : end.end()].strip()
            begin = end.end()
    if text[begin:].strip():
        yield text[begin:].strip()


def length(sentence: str) -> int:
    """The words of a sentence; a piece of code is one."""
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def measured(page: str, *, cells: bool = True) -> Iterator[tuple[int, str]]:
    """(words, sentence) of each sentence of a page, with those in tables unless told otherwise."""
    for text, cell in blocks(page):
        if cells or not cell:
            yield from ((length(sentence), sentence) for sentence in sentences(text))


def pages() -> list[Path]:
    return [path for pattern in PAGES for path in sorted(ROOT.glob(pattern))]


def too_long(path: Path) -> list[tuple[int, str]]:
    found = measured(path.read_text(encoding="utf-8"), cells=path.parent.name != "adr")
    return [(words, sentence) for words, sentence in found if words > MOST_WORDS]


def test_no_sentence_is_too_long() -> None:
    names = {path.relative_to(ROOT).as_posix(): path for path in pages()}
    found = [f"{name}: {words} words: {sentence}" for name, path in names.items() for words, sentence in too_long(path)]
    assert found == [], "\n".join(found)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("One here. Two there! Three?", ["One here.", "Two there!", "Three?"]),
        ("It goes on\nin the next line. And ends.", ["It goes on in the next line.", "And ends."]),
        ("# A heading\nA text", ["A heading", "A text"]),
        ("- one\n- two, which\n  goes on\n\n1. three", ["one", "two, which goes on", "three"]),
        ("| a head | b |\n|---|---|\n| one. Two | three |", ["a head", "b", "---", "---", "one.", "Two", "three"]),
        ("By Eq. 2 and App. C, e.g. Fig. 5. `step` follows.", ["By Eq. 2 and App. C, e.g. Fig. 5.", "Code follows."]),
        ("At 0.5 λ* it holds (as before). λ* is known.", ["At 0.5 λ* it holds (as before).", "λ* is known."]),
        ("It tells. vLLM hears. gRPC, e.g. a stream.", ["It tells.", "vLLM hears.", "gRPC, e.g. a stream."]),
        ("```\nno. Prose. here\n```\nProse", ["Prose"]),
        ("See [the long\npage](docs/a.md) for `a b\nc d`.", ["See the long page for Code."]),
        ("![A picture. Drawn](a.svg)\n> quoted\n> on", ["A picture.", "Drawn", "quoted on"]),
        ("<!-- begin. --> It takes <b>two</b> steps.", ["It takes  two  steps."]),
    ],
)
def test_a_page_is_split_into_its_sentences(page: str, expected: list[str]) -> None:
    assert [sentence for _, sentence in measured(page) if sentence] == expected


def test_words_are_counted_and_signs_are_not() -> None:
    assert length("A pool - of 64 engines, `x y` aside – is one.".replace("`x y`", "Code")) == 9


@pytest.mark.parametrize("frame", ["{}", "- {}", "| a | {} |", "# {}", "> {}"])
def test_a_sentence_that_is_too_long_is_found(tmp_path: Path, frame: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(frame.format("word " * MOST_WORDS + "."))
    assert too_long(page) == []
    page.write_text(frame.format("word " * MOST_WORDS + "more."))
    assert [words for words, _ in too_long(page)] == [MOST_WORDS + 1]


def test_a_table_of_a_decision_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "adr").mkdir()
    page = tmp_path / "adr/page.md"
    page.write_text(f"| {'word ' * 60}|\n")
    assert too_long(page) == []
