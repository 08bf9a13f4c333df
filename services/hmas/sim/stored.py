"""What can be kept in a store of finished runs."""

import json
from dataclasses import asdict
from hashlib import sha256
from typing import Any, ClassVar, Protocol


class Stored(Protocol):
    """A dataclass of plain data that says what its figures depend on."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def key(self) -> str: ...


def cell_key(cell: Stored) -> str:
    return sha256(json.dumps(asdict(cell), sort_keys=True).encode()).hexdigest()[:24]
