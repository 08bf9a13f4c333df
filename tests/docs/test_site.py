"""The site of the documentation builds without a warning, and nothing in it comes from another host."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from mkdocs.config import load_config

from docs.site import on_config, starred
from docs.version import project_version
from tests.house.repository import ROOT

HEADING = 1000  # how much more a word of a heading counts for search than one of a text
ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^>]*>""")

BROKEN_STAR = re.compile(r"\w<em>|</em>\w")  # emphasis that begins or ends inside a word, as after λ*


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.mark.long
def test_the_site_needs_no_other_host(site: Path) -> None:
    pages = {page.relative_to(site): page.read_text(encoding="utf-8") for page in site.rglob("*.html")}
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
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "mkdocs.yml", "pyproject.toml"):
        shutil.copy(ROOT / name, copy)
    with (copy / page).open("a", encoding="utf-8") as file:
        file.write(f"\n[broken]({link})\n")
    assert build(copy, tmp_path / "site").returncode != 0


@pytest.mark.long
def test_search_works_from_a_folder_and_puts_the_api_first(site: Path) -> None:
    index = json.loads((site / "search/search_index.js").read_text(encoding="utf-8").removeprefix("var __index = "))
    boosts: dict[str, set[float]] = {}
    for entry in index["docs"]:
        boosts.setdefault(entry["location"].partition("#")[0], set()).add(entry["boost"])
    assert all(len(each) == 1 for each in boosts.values())
    ranked = sorted(boosts, key=lambda page: -max(boosts[page]))
    assert ranked[0] == "api.html"
    assert max(boosts["api.html"]) > HEADING * max(max(b) for page, b in boosts.items() if page.startswith("adr/"))
    html = (site / "api.html").read_text(encoding="utf-8")
    assert 'src="assets/iframe-worker.js"' in html


@pytest.mark.long
def test_llms_txt_lists_every_page_as_markdown(site: Path) -> None:
    text = (site / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"^- \[.+\]\((.+)\)$", text, re.MULTILINE)
    assert text.startswith("# H-MAS\n\n> ")
    assert links[:2] == ["index.md", "api.md"]
    linked = {site / link.replace("README.md", "index.md") for link in links}
    assert linked == {page.with_suffix(".md") for page in site.rglob("*.html")} - {site / "404.md"}
    assert all((site / link).read_text(encoding="utf-8").strip() for link in links)


@pytest.mark.long
def test_a_folder_named_after_the_version_offers_the_others(site: Path, tmp_path: Path) -> None:
    config = load_config(str(ROOT / "mkdocs.yml"), site_dir=str(tmp_path / project_version()))
    assert on_config(config).extra["version"] == {"provider": "mike"}
    assert "version" not in on_config(load_config(str(ROOT / "mkdocs.yml"))).extra
    assert f"H-MAS {project_version()}" in (site / "index.html").read_text(encoding="utf-8")


def test_elsewhere_is_found() -> None:
    assert ELSEWHERE.findall('<script async src="https://cdn.example/x.js"></script><a href="https://ok.example">')


def test_the_star_of_lambda_is_no_emphasis_and_stays_in_code() -> None:
    code = "`λ*` and\n```\nλ*\n```\n"
    assert starred(f"at λ*, *not* more; **0.9 λ*** **of λ** {code}") == (
        f"at λ\\*, *not* more; **0.9 λ\\*** **of λ** {code}"
    )
    assert BROKEN_STAR.search("in λ<em>, the highest</em> rate")
