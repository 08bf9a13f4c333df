"""Reads what the mesh has recorded of scheduling's gain, and sums it up by hour and by tenant."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext
from nats.js.api import RawStreamMsg

from hmas.contracts.scheduling_gain import SchedulingGain, TenantScheduled
from hmas.laws.scheduling_gains import GainSum, gain_sum
from hmas.operator.client import connected
from hmas.runtime.bus import Bus
from hmas.wire.codec import WireError, decode
from hmas.wire.subjects import GAIN_STREAM, gain_subject

TIMEOUT_S = 5.0
HOUR_S = 3600.0
MAX_RECORDS = 20_000  # a week of one each minute has half as many
MAX_TENANTS = 50


@dataclass(frozen=True, slots=True)
class RecordedGain:
    """What was told of a pool at an instant, Unix s."""

    at_s: float
    gain: SchedulingGain


@dataclass(slots=True)
class TenantSum:
    """The mean shares on time of a tenant, over windows that count by its requests."""

    tenant: str
    requests: float = 0.0
    was: float = 0.0
    scheduled: float = 0.0

    def add(self, share: TenantScheduled) -> None:
        total = self.requests + share.requests
        if total:
            self.was += (share.was - self.was) * share.requests / total
            self.scheduled += (share.scheduled - self.scheduled) * share.requests / total
        self.requests = total


@dataclass(frozen=True, slots=True)
class GainTable:
    """All that was told, by the hour in which it was (Unix s of its beginning), and by tenant, the largest first."""

    total: GainSum
    hours: dict[float, GainSum] = field(default_factory=dict)
    tenants: tuple[TenantSum, ...] = ()


def gain_table(records: Iterable[RecordedGain]) -> GainTable:
    """Sums records up. Windows overlap where they are longer than the time between two, so that a request may count
    several times, and all about as often."""
    known = sorted(records, key=lambda each: each.at_s)
    hours: dict[float, list[SchedulingGain]] = {}
    tenants: dict[str, TenantSum] = {}
    for each in known:
        hours.setdefault(each.at_s // HOUR_S * HOUR_S, []).append(each.gain)
        for share in () if each.gain.abstains else each.gain.tenants:
            tenants.setdefault(share.tenant, TenantSum(share.tenant)).add(share)
    most = sorted(tenants.values(), key=lambda each: (-each.requests, each.tenant))[:MAX_TENANTS]
    by_hour = {start_s: gain_sum(gains) for start_s, gains in hours.items()}
    return GainTable(gain_sum(each.gain for each in known), by_hour, tuple(most))


async def recorded_gains(bus: Bus, pool: str, last_s: float) -> Sequence[RecordedGain]:
    """Returns what was told of a pool in the last seconds. Raises MeshUnreachable, and ValueError if the record cannot
    be read."""
    since = datetime.now(UTC) - timedelta(seconds=last_s)
    async with connected(bus):
        js = bus.client.jetstream(timeout=TIMEOUT_S)
        try:
            state = (await js.stream_info(GAIN_STREAM)).state
            subject = gain_subject(pool)
            number = await _first_since(js, subject, since, state.first_seq, state.last_seq)
            found: list[RecordedGain] = []
            while number <= state.last_seq and len(found) < MAX_RECORDS:
                message = await _next(js, subject, number)
                if message is None or message.seq is None:
                    break
                number = message.seq + 1
                found.append(RecordedGain(_time(message).timestamp(), decode(SchedulingGain, message.data or b"")))
        except (nats.errors.Error, WireError) as error:
            raise ValueError(
                f"what scheduling would bring cannot be read ({type(error).__name__}): update the mesh and the NATS "
                "users, start it with HMAS_MODE=observe, and wait for a minute"
            ) from None
    return found


async def _first_since(js: JetStreamContext, subject: str, since: datetime, low: int, last: int) -> int:
    """Returns a number in the stream from which on the subject's messages are not older, by bisection."""
    high = last + 1
    while low < high:
        middle = (low + high) // 2
        message = await _next(js, subject, middle)
        if message is None or message.seq is None or _time(message) >= since:
            high = middle
        else:
            low = message.seq + 1
    return low


async def _next(js: JetStreamContext, subject: str, number: int) -> RawStreamMsg | None:
    """Returns the first message of a subject from a number on; None if there is none."""
    try:
        return await js.get_msg(GAIN_STREAM, number, subject, next=True)
    except nats.js.errors.NotFoundError:
        return None


def _time(message: RawStreamMsg) -> datetime:
    return message.time or datetime.fromtimestamp(0.0, UTC)
