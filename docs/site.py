"""The hooks of `mkdocs.yml`: pages of the site that lie elsewhere in the repository, and the list of decisions."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
ELSEWHERE = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for name, source in ELSEWHERE.items():
        files.append(File.generated(config, name, content=_linked((ROOT / source).read_text(encoding="utf-8"))))
    files.append(File.generated(config, "adr/index.md", content=_decisions()))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    return markdown.replace("](adr)", "](adr/index.md)")  # a folder, which only the repository shows


def _linked(text: str) -> str:
    """Returns a page of the repository's root with its links as seen from the folder docs."""
    text = text.replace("](docs/adr)", "](adr/index.md)").replace("](docs/", "](").replace('src="docs/', 'src="')
    return re.sub(r"\]\((CONTRIBUTING|CHANGELOG)\.md", lambda found: f"]({found[1].lower()}.md", text)


def _decisions() -> str:
    pages = sorted((ROOT / "docs/adr").glob("0*.md"))
    titles = {page.name: page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for page in pages}
    return "# Decisions\n\n" + "".join(f"- [{title}]({name})\n" for name, title in titles.items())
