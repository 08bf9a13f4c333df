"""What the meta controller of a running mesh records of its decisions."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats

from hmas.contracts.control import AuditRecord
from hmas.wire.codec import decode
from hmas.wire.permissions import OPERATOR, inbox
from hmas.wire.subjects import AUDIT


class Audits:
    """The meta controller's records as they come."""

    def __init__(self) -> None:
        self.found: list[AuditRecord] = []

    async def __aenter__(self) -> "Audits":
        return self

    async def listen(self, mesh: Any) -> None:
        password = Path(mesh.state["nats_password_file"]).read_text()
        self._connection = await nats.connect(
            mesh.state["nats_url"], user=OPERATOR, inbox_prefix=inbox(OPERATOR).encode(), password=password
        )

        async def heard(message: Any) -> None:
            record = decode(AuditRecord, message.data)
            if record.source == "meta":
                self.found.append(record)

        await self._connection.subscribe(AUDIT, cb=heard)

    async def wait(self, seconds: float, test: Callable[[AuditRecord], bool]) -> AuditRecord | None:
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            if (found := next(filter(test, self.found), None)) is not None:
                return found
            await asyncio.sleep(0.2)
        return None

    def told_since(self, switch: AuditRecord) -> list[tuple[str, str]]:
        """Returns who changed the topology and why, from the switch on: a guard may take it back at any time."""
        since = self.found[self.found.index(switch) :]
        return [(r.selector, r.reason) for r in since if r.kind not in ("rejected", "outcome")]

    async def __aexit__(self, *_: object) -> None:
        await self._connection.close()
