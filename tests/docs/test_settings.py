"""Every setting of a service says what it is, is bounded if it is a number, and something reads it."""

import re
from typing import get_args

import pytest
from pydantic import BaseModel, Field

from docs.services import SERVICE_SETTINGS
from hmas.runtime.settings import RuntimeSettings
from tests.house.repository import written

CLASSES: dict[str, type[BaseModel]] = {"runtime": RuntimeSettings, **SERVICE_SETTINGS}
CODE = "\n".join(text for _, text in written(".py", below=("services/",)))
UNBOUNDED = frozenset({"seed"})  # any number will do
VAGUE = ("Most ", "Least ")  # these read like an adverb: Maximum number of, Minimum


def faults(cls: type[BaseModel], code: str) -> list[str]:
    """What is amiss with the settings of a class."""
    found = []
    for name, field in cls.model_fields.items():
        if not field.description:
            found.append(f"{name} has no description")
        elif field.description.startswith(VAGUE):
            found.append(f"{name}: write Maximum or Minimum")
        kinds = {field.annotation, *get_args(field.annotation)}
        if kinds & {int, float} and not field.metadata and name not in UNBOUNDED:
            found.append(f"{name} has no bounds")
        if not re.search(rf"\.{name}\b", code):
            found.append(f"nothing reads {name}")
    return found


@pytest.mark.parametrize("service", CLASSES)
def test_each_setting_says_what_it_is_and_is_read(service: str) -> None:
    assert faults(CLASSES[service], CODE) == []
    assert CLASSES[service].model_fields


def test_a_setting_that_says_nothing_or_that_nothing_reads_is_found() -> None:
    class Settings(BaseModel):
        told: int = Field(1, ge=1, description="Number of workers")
        bare: bool = True
        vague: float | None = Field(1.0, description="Most workers")

    assert faults(Settings, "settings.told + settings.bare + settings.vague") == [
        "bare has no description",
        "vague: write Maximum or Minimum",
        "vague has no bounds",
    ]
    assert faults(Settings, "settings.bare, settings.vague, settings.told_s")[0] == "nothing reads told"
