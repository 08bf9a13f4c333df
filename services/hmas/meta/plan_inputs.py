"""What plans begin with, from outside: the cards that they may use, the last plan in the bucket, an operator's file."""

import asyncio
import re
from collections.abc import Callable, Collection
from pathlib import Path

import structlog
import yaml
from pydantic import TypeAdapter, ValidationError

from hmas.contracts.control_agents import PlanPinned
from hmas.contracts.pool_plan import Budget, PlanDecision, PoolPlan
from hmas.runtime.bucket import BucketUnavailable, ControlBucket
from hmas.wire.subjects import PLAN_KEY

log = structlog.get_logger()
CHECK_S = 5.0
MAX_BYTES = 2**20
MAX_TOLD_CHARS = 300
_CARDS = re.compile(r"(\d{1,6})x(\S+)")
_PLANS = TypeAdapter(tuple[PoolPlan, ...])


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
    """Reads the last plan decision from the control bucket."""

    def __init__(self, bucket: ControlBucket, hear: Callable[[PlanDecision], None]) -> None:
        self._bucket, self._hear = bucket, hear

    async def restore(self) -> None:
        try:
            last = await self._bucket.read(PlanDecision, PLAN_KEY)
        except BucketUnavailable as error:
            log.warning("last_plan_unread", error=str(error))
            return
        if last is not None:
            self._hear(last[0])


class PinnedPlanFile:
    """Posts the plan of a file whenever its text changes: a YAML list with `pool`, `groups` (`type` and `count`) and
    `split` for each pool. A file that cannot be read changes nothing; one that is gone lifts the pin."""

    def __init__(self, path: Path, post: Callable[[object], None]) -> None:
        self._path, self._post = path, post
        self._text: bytes | None = None

    async def keep(self) -> None:
        """Looks every `CHECK_S` seconds, until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(CHECK_S)

    def look(self) -> None:
        try:
            text = self._path.read_bytes()[: MAX_BYTES + 1] if self._path.exists() else b""
            if text == self._text:
                return
            self._text = text
            self._post(PlanPinned(_parsed(text)))
        except (OSError, ValueError) as error:
            log.warning("plan_file_not_valid", file=str(self._path), reason=str(error)[:MAX_TOLD_CHARS])


def _parsed(text: bytes) -> tuple[PoolPlan, ...]:
    if len(text) > MAX_BYTES:
        raise ValueError(f"it has more than {MAX_BYTES} bytes")
    try:
        return _PLANS.validate_python(yaml.safe_load(text) or ())
    except yaml.YAMLError as error:
        raise ValueError(f"it is not YAML: {error}") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
