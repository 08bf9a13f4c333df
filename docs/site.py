"""The hooks of `mkdocs.yml`: pages that lie elsewhere in the repository, what depends on the code at hand, which pages
search puts first, and the pages as a language model reads them (`llms.txt`)."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.benchmarks import benchmarks_page, digest
from docs.version import project_version

ROOT = Path(__file__).resolve().parents[1]
# Blocks and spans of code, which stand as they are, or a λ* outside of them.
_CODE = re.compile(r"(^```.*?^```|`[^`]+`)|λ\*(?!\*(?!\*))", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
# By what search multiplies a page's score. A word of a heading counts a thousand times one of a text.
FIRST, USED, RUN, HISTORY = 2000.0, 20.0, 10.0, 0.001
BOOSTS = {"api.md": FIRST, "Use it": USED, "Run it": RUN}
OLD = ("adr/", "lab/", "results/", "changelog.md")
_MARKDOWN: dict[str, str] = {}  # of the site that is being built, by page


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Names the version on each page. In a folder named after the version, which may stand beside those of others,
    pages offer the versions that `versions.json` in the folder above names."""
    version = project_version()
    config.copyright = f"H-MAS {version}"
    if Path(config.site_dir).name == version:
        config.extra["version"] = {"provider": "mike"}
    _MARKDOWN.clear()
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=_linked((ROOT / source).read_text(encoding="utf-8"))))
    return files


def _linked(text: str) -> str:
    """Returns a page of the repository's root with its links as seen from the folder docs."""
    text = text.replace("](docs/", "](").replace('src="docs/', 'src="')
    return re.sub(r"\]\((CONTRIBUTING|CHANGELOG)\.md", lambda found: f"]({found[1].lower()}.md", text)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    name = page.file.src_uri
    if name == "benchmarks.md":
        markdown = benchmarks_page(digest)
    page.meta["search"] = {"boost": boost(name, [str(section.title) for section in page.ancestors])}
    _MARKDOWN[name] = markdown
    return starred(markdown)


def boost(name: str, sections: list[str]) -> float:
    """Returns by what search multiplies the score of a page in these sections of the navigation."""
    if name.startswith(OLD):
        return HISTORY
    return BOOSTS.get(name) or next((BOOSTS[section] for section in sections if section in BOOSTS), 1.0)


def starred(markdown: str) -> str:
    """The star of λ* begins no emphasis, which is what Markdown takes it for outside code."""
    return _CODE.sub(lambda found: found[0] if found[1] else "λ\\*", markdown)


def on_post_build(config: MkDocsConfig) -> None:
    """Writes each page's Markdown beside its HTML, and `llms.txt`, which lists them (https://llmstxt.org)."""
    site = Path(config.site_dir)
    for name, text in _MARKDOWN.items():
        (site / name).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(llms_txt(config, _MARKDOWN), encoding="utf-8")


def llms_txt(config: MkDocsConfig, pages: dict[str, str]) -> str:
    """Returns the list of pages, with what was measured and decided as optional."""
    told = [f"# {config.site_name}", "", f"> {config.site_description}, version {project_version()}.", ""]
    for heading, old in (("Pages", False), ("Optional", True)):
        chosen = [(name, text) for name, text in pages.items() if name.startswith(OLD) is old]
        told += [f"## {heading}", "", *(f"- [{_title(text)}]({name})" for name, text in sorted(chosen, key=_rank)), ""]
    return "\n".join(told)


def _rank(page: tuple[str, str]) -> tuple[bool, bool, str]:
    return page[0] != "index.md", page[0] != "api.md", page[0]


def _title(markdown: str) -> str:
    return next((line[2:].strip() for line in markdown.splitlines() if line.startswith("# ")), "Untitled")
