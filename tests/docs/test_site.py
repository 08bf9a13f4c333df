"""The site of the documentation builds without a warning, and nothing in it comes from another host."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from docs.site import starred
from tests.house.repository import ROOT

ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")

BROKEN_STAR = re.compile(r"\w<em>|</em>\w")  # emphasis that begins or ends inside a word, as after λ*


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.long
def test_the_site_builds_and_needs_no_other_host(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = {page.relative_to(tmp_path): page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    for path in (*(ROOT / "docs").glob("*.md"), ROOT / "docs/index.md", ROOT / "docs/results/goodput.md"):
        assert path.relative_to(ROOT / "docs").with_suffix(".html") in pages
    assert [(str(name), found) for name, text in pages.items() for found in ELSEWHERE.findall(text)] == []
    assert {str(name): found for name, text in pages.items() if (found := BROKEN_STAR.findall(text))} == {}
    assert 'src="results/figures/h100.svg"' in pages[Path("index.html")]
    assert re.search(r"<td>(ships|older)</td>", pages[Path("benchmarks.html")])


@pytest.mark.long
@pytest.mark.parametrize(
    ("page", "link"), [("README.md", "docs/nowhere.md"), ("docs/attach.md", "engines.md#no-such-heading")]
)
def test_a_broken_link_breaks_the_build(tmp_path: Path, page: str, link: str) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(ROOT / "docs", copy / "docs")
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml"):
        shutil.copy(ROOT / name, copy)
    with (copy / page).open("a", encoding="utf-8") as file:
        file.write(f"\n[broken]({link})\n")
    assert build(copy, tmp_path / "site").returncode != 0


def test_elsewhere_is_found() -> None:
    assert ELSEWHERE.findall('<script async src="https://cdn.example/x.js"></script><a href="https://ok.example">')


def test_the_star_of_lambda_is_no_emphasis_and_stays_in_code() -> None:
    code = "`λ*` and\n```\nλ*\n```\n"
    assert starred(f"at λ*, *not* more; **0.9 λ*** **of λ** {code}") == (
        f"at λ\\*, *not* more; **0.9 λ\\*** **of λ** {code}"
    )
    assert BROKEN_STAR.search("in λ<em>, the highest</em> rate")
