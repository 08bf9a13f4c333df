"""What plans begin with, from outside: the cards that they may use, the last plan in the bucket, an operator's plan in
the bucket or in a file."""

import asyncio
import re
from collections.abc import Callable, Collection
from pathlib import Path

import structlog

from hmas.contracts.control_agents import PlanPinChanged, PlanPinned
from hmas.contracts.pool_plan import Budget, Catalogue, PlanDecision, PlanPin
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.runtime.plan_file import MAX_BYTES, parse_plan
from hmas.wire.subjects import PLAN_KEY, PLAN_PIN_KEY

log = structlog.get_logger()
CHECK_S = 5.0
MAX_TOLD_CHARS = 300
_CARDS = re.compile(r"(\d{1,6})x(\S+)")


def read_budgets(text: str, known: Collection[str]) -> tuple[Budget, ...]:
    """Returns the budgets of a text such as `16xh100,8xh200`. Raises ValueError if it is not like that, or names cards
    that no type of the catalogue has."""
    found = [_CARDS.fullmatch(part.strip()) for part in text.split(",")]
    budgets = tuple(Budget(each[2], int(each[1])) for each in found if each is not None)
    names = [each.hardware for each in budgets]
    if len(budgets) < len(found) or len(set(names)) < len(names) or not set(names) <= set(known):
        raise ValueError(
            f"HMAS_PLAN_BUDGET={text!r} must be numbers of cards such as 16xh100,8xh200, each of one of "
            f"{', '.join(sorted(known))}: HMAS_CATALOGUE is set"
        )
    return budgets


class LastPlan:
    """Reads the last plan decision and the plan that the console pinned from the control bucket."""

    def __init__(
        self, bucket: ControlBucket, hear: Callable[[PlanDecision], None], post: Callable[[object], None]
    ) -> None:
        self._bucket, self._hear, self._post = bucket, hear, post

    async def restore(self) -> None:
        try:
            last = await self._bucket.read(PlanDecision, PLAN_KEY)
            pin = await self._bucket.read(PlanPin, PLAN_PIN_KEY)
        except BucketUnavailable as error:
            log.warning("last_plan_unread", error=str(error))
            return
        if last is not None:
            self._hear(last[0])
        if pin is not None:
            self._post(PlanPinChanged(pin[0]))


class PinnedPlanFile:
    """Posts the plan of a file (`hmas.runtime.plan_file`) whenever its text changes. A file that cannot be read changes
    nothing; one that is empty or gone lifts the pin."""

    def __init__(self, path: Path, catalogue: Catalogue, post: Callable[[object], None]) -> None:
        self._path, self._catalogue, self._post = path, catalogue, post
        self._text: bytes | None = None

    async def keep(self) -> None:
        """Looks every `CHECK_S` seconds, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(CHECK_S)

    def look(self) -> None:
        try:
            text = self._read()
            if text == self._text:
                return
            self._text = text
            if len(text) > MAX_BYTES:
                raise ValueError(f"it has more than {MAX_BYTES} bytes")
            plans = parse_plan(text.decode("utf-8"), self._catalogue) if text else ()
        except (OSError, ValueError) as error:  # of the encoding, too
            log.warning("plan_file_not_valid", file=str(self._path), reason=str(error)[:MAX_TOLD_CHARS])
            return
        self._post(PlanPinned(plans))

    def _read(self) -> bytes:
        try:
            with self._path.open("rb") as file:
                return file.read(MAX_BYTES + 1).strip()
        except FileNotFoundError:
            return b""
