"""Converts the messages between gateways and workers. Instants of one host become durations here, and nowhere else,
because the clocks of two hosts differ."""

import re
from collections.abc import Callable
from typing import Any, get_args

import structlog

from hmas.contracts.execution import Adopt, GatewayMessage, Submit, WorkerMessage
from hmas.wire.codec import WireError, fill, from_message
from hmas.wire.v1 import execution_pb2 as pb

log = structlog.get_logger()


def _fields(messages: Any) -> dict[type, str]:
    """Returns the field of the frame's operations for each type of message: `first_token` for `FirstToken`."""
    return {cls: re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower() for cls in get_args(messages)}


_FIELDS = {**_fields(GatewayMessage), **_fields(WorkerMessage)}
_TYPES = {field: cls for cls, field in _FIELDS.items()}
_TIMED = (Submit, Adopt)  # the messages that hold instants


def add(frame: Any, now_s: float, message: GatewayMessage | WorkerMessage) -> None:
    """Appends a message to a frame that is about to be sent; `now_s` is the sender's clock."""
    converted = getattr(frame.ops.add(), _FIELDS[type(message)])
    fill(converted, message)
    if isinstance(message, _TIMED):
        _shift(converted, -now_s)


def deliver(frame: pb.GatewayFrame | pb.WorkerFrame, now_s: float, peer: str, take: Callable[[str, Any], None]) -> None:
    """Calls `take(peer, message)` for each message of a received frame, with instants on the clock that shows `now_s`.

    Messages that only newer peers know are left out. One with a value that is not allowed, and one at which `take`
    raises, is logged and left out: neither may end the stream, which carries many requests.
    """
    for op in frame.ops:
        field = op.WhichOneof("op")
        if field is None:
            continue
        cls, message = _TYPES[field], getattr(op, field)
        if cls in _TIMED:
            _shift(message, now_s)
        try:
            take(peer, from_message(cls, message))
        except WireError as error:
            log.warning("message_malformed", peer=peer, error=str(error))
        except Exception:
            log.exception("message_failed", peer=peer, message=cls.__name__)


def _shift(message: Any, by_s: float) -> None:
    message.request.arrival_s += by_s
    if isinstance(message, pb.Adopt):
        message.granted_s += by_s
        if message.HasField("first_token_s"):
            message.first_token_s += by_s
