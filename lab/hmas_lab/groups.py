"""The packages that training needs: a group of pyproject.toml and no extra, because the wheel does not train."""

from collections.abc import Iterator
from contextlib import contextmanager

from hmas.runtime.extras import OURS, MissingExtra


@contextmanager
def needs_group(group: str) -> Iterator[None]:
    """Context manager around imports, or decorator of a function that imports: raises MissingExtra, with advice, if a
    package of a dependency group is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        advice = f"run `uv pip install --group {group}` in the clone"
        raise MissingExtra(f"the Python package {package} is missing: {advice}") from error
