"""What it is worth to serve a request on time, from the mesh's tenants file."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hmas.contracts.request import TaskType

LEAST, MOST = 0.001, 1e6  # as in the mesh


@dataclass(frozen=True, slots=True)
class Worth:
    """The weights of tenants and of task types by which the utility counts requests (H-MAS Eq. 1), and Jain's index the
    shares of tenants. What has none has weight 1."""

    tenants: Mapping[str, float] = field(default_factory=dict)
    classes: Mapping[str, float] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tenants or self.classes)


def read_worth(path: Path | None) -> Worth:
    """Reads the weights from the YAML file that `hmas up --tenants` takes; all other fields are the mesh's. Returns no
    weights for no path; raises ValueError if there is none in the file, or one is none that the mesh would take."""
    if path is None:
        return Worth()
    try:
        content = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise ValueError(f"--worth: {path} is not YAML: {error}") from None
    tenants = _mapping(path, content, "tenants")
    classes = _mapping(path, content, "classes")
    if unknown := sorted(map(str, set(classes) - set(TaskType))):
        raise ValueError(f"--worth: {path}: no task type: {', '.join(unknown)}; choose one of {', '.join(TaskType)}")
    fields = {str(tenant): _mapping(path, tenants, tenant) for tenant in tenants}
    found = Worth(
        {tenant: _weight(path, tenant, each["weight"]) for tenant, each in fields.items() if "weight" in each},
        {str(t): _weight(path, t, weight) for t, weight in classes.items()},
    )
    if not found:
        raise ValueError(f"--worth: {path} weights neither a tenant nor a task type")
    return found


def _mapping(path: Path, content: Any, name: object) -> Mapping[Any, Any]:
    found = content.get(name) or {} if isinstance(content, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"--worth: {path} is not a tenants file: `{name}` must be a mapping")
    return found


def _weight(path: Path, name: object, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
        raise ValueError(f"--worth: {path}: the weight of {name} must be {LEAST:g} to {MOST:g}, not {value!r:.40}")
    return float(value)
