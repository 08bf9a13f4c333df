"""The extras of the package: code that needs one says so, instead of ending in a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

OURS = ("hmas", "hmas_loadgen")
# What one extra alone brings, whoever imports it; numpy, for one, is in several.
EXTRA_OF = {
    **dict.fromkeys(("matplotlib", "pyarrow"), "load"),
    **dict.fromkeys(("openai", "river"), "meta"),
    **dict.fromkeys(("catboost", "onnx", "pandas", "peft", "scipy", "sklearn", "torch", "transformers"), "train"),
}


class CannotStart(Exception):
    """A setting, or what it points at, cannot be used. The message is one line and says what to do."""


class MissingExtra(CannotStart):
    """A package is not installed that one of our extras brings."""


@contextmanager
def needs(extra: str, instead: str = "") -> Iterator[None]:
    """Imports inside the block need `extra`, where EXTRA_OF knows no better; `instead` is a way without it.

    Raises MissingExtra.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        advice = f"pip install 'hmas[{EXTRA_OF.get(package, extra)}]'" + (f", or {instead}" if instead else "")
        raise MissingExtra(f"{package} is missing: {advice}") from error
