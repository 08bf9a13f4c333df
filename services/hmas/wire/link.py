"""One side of a gateway-worker session, without I/O: it numbers and acknowledges frames, and continues on a new
connection.

When a connection breaks, gRPC loses what was on its way. Each side therefore keeps the frames it sent until the peer
acknowledges them, and sends the others again on the next connection of the same session. Thus a broken connection does
not count as a dead peer. A gap in the numbers, or too many unacknowledged frames, ends the session with SessionLost.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar


class Frame(Protocol):
    seq: int
    ack: int

    def ByteSize(self) -> int: ...


F = TypeVar("F", bound=Frame)

MAX_UNACKED_FRAMES = 16_384
MAX_UNACKED_BYTES = 96 * 2**20
WINDOW_BYTES = 16 * 2**20  # a sender with more unacknowledged bytes waits; far below MAX_UNACKED_BYTES
ACK_EVERY = 32  # received frames after which an acknowledgement is sent at once
ACK_BYTES = 2**20  # received bytes after which an acknowledgement is sent at once


class SessionLost(Exception):
    """A gateway-worker session must end and cannot be continued, because frames are missing or too much waits."""


class Link(Generic[F]):
    """The state of one gateway-worker session on one side. It must not be used after a method raised SessionLost.

    `max_frames`, `max_bytes`: most frames and bytes that may wait for an acknowledgement. `window_bytes`: number of
    unacknowledged bytes above which the sender should wait.
    """

    def __init__(
        self,
        session: str,
        *,
        max_frames: int = MAX_UNACKED_FRAMES,
        max_bytes: int = MAX_UNACKED_BYTES,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.session = session
        self.received = 0  # number of the last frame received from the peer
        self._acknowledged = 0  # number of the last received frame that the peer was told of
        self._unacknowledged_bytes = 0  # bytes received since then
        self._sent = 0
        self._unacked: deque[tuple[F, int]] = deque()
        self._unacked_bytes = 0
        self._max_frames = max_frames
        self._max_bytes = max_bytes
        self._window_bytes = window_bytes

    @property
    def ack_due(self) -> bool:
        return self.received - self._acknowledged >= ACK_EVERY or self._unacknowledged_bytes >= ACK_BYTES

    @property
    def ack_pending(self) -> bool:
        return self.received > self._acknowledged

    @property
    def window_open(self) -> bool:
        """Whether more may be sent: the peer has acknowledged enough of the frames sent before."""
        return self._unacked_bytes < self._window_bytes and len(self._unacked) < self._max_frames // 2

    @property
    def unacked(self) -> int:
        return len(self._unacked)

    def number(self, frame: F) -> F:
        """Numbers a frame that is about to be sent, and keeps it until the peer acknowledges it. Raises SessionLost if
        more than `max_frames` frames or `max_bytes` bytes are kept."""
        self._sent += 1
        frame.seq = self._sent
        self.stamp(frame)
        size = frame.ByteSize()
        self._unacked.append((frame, size))
        self._unacked_bytes += size
        if len(self._unacked) > self._max_frames or self._unacked_bytes > self._max_bytes:
            raise SessionLost(f"{len(self._unacked)} frames, {self._unacked_bytes} bytes were never acknowledged")
        return frame

    def stamp(self, frame: F) -> F:
        """Writes the number of the last received frame into a frame, as an acknowledgement. A frame without operations
        may carry one too; it has no number of its own."""
        frame.ack = self._acknowledged = self.received
        self._unacknowledged_bytes = 0
        return frame

    def accept(self, frame: Frame) -> bool:
        """Records a received frame and what it acknowledges; returns whether its operations are new, so that they must
        be carried out. Raises SessionLost if a frame before it is missing."""
        self._forget(frame.ack)
        if frame.seq <= self.received:  # a duplicate; or 0: no operation, only an acknowledgement
            return False
        if frame.seq != self.received + 1:
            raise SessionLost(f"frame {frame.seq} came after frame {self.received}: those between are missing")
        self.received = frame.seq
        self._unacknowledged_bytes += frame.ByteSize()
        return True

    def resume(self, peer_received: int) -> list[F]:
        """Returns the frames to send again on a new connection to a peer that has received those up to `peer_received`.
        Raises SessionLost if the peer needs frames that are no longer kept."""
        self._forget(peer_received)
        oldest = self._unacked[0][0].seq if self._unacked else self._sent + 1
        if peer_received < oldest - 1:
            raise SessionLost(f"the peer needs frame {peer_received + 1} again, which it had acknowledged before")
        return [frame for frame, _ in self._unacked]

    def _forget(self, acknowledged: int) -> None:
        if acknowledged > self._sent:
            raise SessionLost(f"the peer acknowledged frame {acknowledged}, but only {self._sent} were sent")
        while self._unacked and self._unacked[0][0].seq <= acknowledged:
            self._unacked_bytes -= self._unacked.popleft()[1]
