"""The hooks of `mkdocs.yml`: pages that lie elsewhere in the repository, and what depends on the code at hand."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.benchmarks import benchmarks_page, digest

ROOT = Path(__file__).resolve().parents[1]
# Blocks and spans of code, which stand as they are, or a λ* outside of them.
_CODE = re.compile(r"(^```.*?^```|`[^`]+`)|λ\*(?!\*(?!\*))", re.DOTALL | re.MULTILINE)
ELSEWHERE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=_linked((ROOT / source).read_text(encoding="utf-8"))))
    return files


def _linked(text: str) -> str:
    """Returns a page of the repository's root with its links as seen from the folder docs."""
    text = text.replace("](docs/", "](").replace('src="docs/', 'src="')
    return re.sub(r"\]\((CONTRIBUTING|CHANGELOG)\.md", lambda found: f"]({found[1].lower()}.md", text)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    if page.file.src_uri == "benchmarks.md":
        markdown = benchmarks_page(digest)
    return starred(markdown)


def starred(markdown: str) -> str:
    """The star of λ* begins no emphasis, which is what Markdown takes it for outside code."""
    return _CODE.sub(lambda found: found[0] if found[1] else "λ\\*", markdown)
