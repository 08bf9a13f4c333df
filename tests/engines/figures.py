"""Figures that a suite measures by the way, for a page: a line of JSON each in the file that `FIGURES_FILE` names."""

import json
import os
from pathlib import Path


def note(name: str, value: float) -> None:
    """Appends a figure; does nothing where no file is named."""
    if file := os.environ.get("FIGURES_FILE"):
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write(json.dumps({"figure": name, "value": value}) + "\n")
