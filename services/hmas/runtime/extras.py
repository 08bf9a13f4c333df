"""Errors for what an operator can fix, and the optional dependencies ("extras") of the package `hmas`: a missing one
gives advice on what to install instead of a traceback."""

from collections.abc import Iterator
from contextlib import contextmanager

from hmas.installation import install_command

OURS = ("hmas", "hmas_loadgen", "hmas_lab")
# The extra that installs a package, for packages that are in one extra only (numpy, for instance, is in several).
EXTRA_OF = {
    "cryptography": "certificates",
    **dict.fromkeys(("matplotlib", "pyarrow"), "load"),
    **dict.fromkeys(("msgspec", "zmq"), "kv-events"),
    "openai": "meta",
    "scipy": "plan",
    **dict.fromkeys(("peft", "torch", "transformers"), "generative"),
}


class CannotStart(Exception):
    """The process cannot start because a setting, or the file or address it names, cannot be used. The message is one
    line and says what to do."""


class MissingExtra(CannotStart):
    """A package that belongs to an extra of `hmas` is not installed."""


@contextmanager
def needs(extra: str, instead: str = "") -> Iterator[None]:
    """Context manager around imports that need an extra: raises MissingExtra, with advice, if a package is missing.

    The advice names the extra that EXTRA_OF has for the package, otherwise `extra`. `instead` says how to do without.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if not package or package in OURS:
            raise
        advice = install_command(EXTRA_OF.get(package, extra)) + (f", or {instead}" if instead else "")
        raise MissingExtra(f"the Python package {package} is missing: {advice}") from error
