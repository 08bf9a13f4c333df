"""One side of a gateway-worker session, without I/O: numbered frames, acknowledgements, healing of a broken stream.

gRPC loses what was in flight when a connection breaks. Each side keeps what it sent until the peer acknowledges it,
and sends the rest again on the next connection of the same session, so that a broken stream is not a dead peer.
A gap, or more unacknowledged frames than the bound, ends the session: everything on it is lost, and said so.
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
WINDOW_BYTES = 16 * 2**20  # unacknowledged, beyond which a sender waits: far below the bound, so that it never hits
ACK_EVERY = 32  # frames received before an acknowledgement is worth a frame of its own
ACK_BYTES = 2**20


class SessionLost(Exception):
    """The session cannot be healed: a gap, or a buffer bound passed."""


class Link(Generic[F]):
    """State of one session on one side. After `SessionLost` it is of no more use."""

    def __init__(
        self,
        session: str,
        *,
        max_frames: int = MAX_UNACKED_FRAMES,
        max_bytes: int = MAX_UNACKED_BYTES,
        window_bytes: int = WINDOW_BYTES,
    ) -> None:
        self.session = session
        self.received = 0  # last frame of the peer seen
        self._acknowledged = 0  # last `received` told to the peer
        self._unacknowledged_bytes = 0  # received since
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
        """Whether the peer has seen enough of what was sent for more to be sent."""
        return self._unacked_bytes < self._window_bytes and len(self._unacked) < self._max_frames // 2

    @property
    def unacked(self) -> int:
        return len(self._unacked)

    def number(self, frame: F) -> F:
        """Numbers a frame about to be sent and keeps it until acknowledged. Raises SessionLost past the bound."""
        self._sent += 1
        frame.seq = self._sent
        self.stamp(frame)
        size = frame.ByteSize()
        self._unacked.append((frame, size))
        self._unacked_bytes += size
        if len(self._unacked) > self._max_frames or self._unacked_bytes > self._max_bytes:
            raise SessionLost(f"{len(self._unacked)} frames, {self._unacked_bytes} bytes unacknowledged")
        return frame

    def stamp(self, frame: F) -> F:
        """Puts the current acknowledgement on a frame (also one without operations, which has no number)."""
        frame.ack = self._acknowledged = self.received
        self._unacknowledged_bytes = 0
        return frame

    def accept(self, frame: Frame) -> bool:
        """Takes in a received frame; whether its operations are new. Raises SessionLost on a gap."""
        self._forget(frame.ack)
        if frame.seq <= self.received:  # a duplicate; or 0: no operation, only an acknowledgement
            return False
        if frame.seq != self.received + 1:
            raise SessionLost(f"frame {frame.seq} after {self.received}")
        self.received = frame.seq
        self._unacknowledged_bytes += frame.ByteSize()
        return True

    def resume(self, peer_received: int) -> list[F]:
        """Frames to send again on a new connection. Raises SessionLost where the peer misses forgotten ones."""
        self._forget(peer_received)
        oldest = self._unacked[0][0].seq if self._unacked else self._sent + 1
        if peer_received < oldest - 1:
            raise SessionLost(f"peer saw frame {peer_received}, kept are {oldest} to {self._sent}")
        return [frame for frame, _ in self._unacked]

    def _forget(self, acknowledged: int) -> None:
        if acknowledged > self._sent:
            raise SessionLost(f"peer saw frame {acknowledged}, sent were {self._sent}")
        while self._unacked and self._unacked[0][0].seq <= acknowledged:
            self._unacked_bytes -= self._unacked.popleft()[1]
