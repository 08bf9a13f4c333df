"""The interface of what a store of finished runs can keep."""

import json
from dataclasses import asdict
from hashlib import sha256
from typing import Any, ClassVar, Protocol


class Stored(Protocol):
    """A dataclass of plain data that holds the parameters on which the stored figures depend."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def key(self) -> str:
        """Returns the name under which the figures are stored, usually `cell_key` of it."""


def cell_key(cell: Stored) -> str:
    """Returns the name under which a store keeps the figures of a run with the parameters `cell`: 24 hex digits,
    a digest over all of these parameters."""
    return sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:24]
