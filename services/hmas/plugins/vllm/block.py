"""Layout of the control block (worker to engine) and the status block (engine to worker): 64 bytes with a CRC-32.

A block that is half written, of another program or of another version unpacks as None. Numbers are unsigned and
little-endian.
"""

import struct
import zlib
from dataclasses import dataclass

BLOCK_BYTES = 64
MAX_VALID_FOR_S = 60.0
_BODY = BLOCK_BYTES - 4  # the checksum closes the block
_VERSION = 1
_U32 = 2**32 - 1
_CONTROL = struct.Struct("<4sHHQIII")
_STATUS = struct.Struct("<4sHHQIIIIQII")
_CHECKSUM = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ControlBlock:
    """The caps that the worker sets: running sequences (`n_run`) and decode tokens per step (`b_token`); 0 sets no cap.

    They are in force for `valid_for_s` seconds (at most `MAX_VALID_FOR_S`) after the engine first sees the block.
    """

    seq: int
    n_run: int
    b_token: int
    valid_for_s: float

    def pack(self) -> bytes:
        valid_ms = int(min(MAX_VALID_FOR_S, max(0.0, self.valid_for_s)) * 1000)
        n_run, b_token = _u32(self.n_run), _u32(self.b_token)
        return _seal(_CONTROL.pack(b"HMAS", _VERSION, 0, self.seq, n_run, b_token, valid_ms))

    @staticmethod
    def unpack(data: bytes) -> "ControlBlock | None":
        if not _sound(data, b"HMAS"):
            return None
        _, _, _, seq, n_run, b_token, valid_ms = _CONTROL.unpack_from(data)
        return ControlBlock(seq, n_run, b_token, min(MAX_VALID_FOR_S, valid_ms / 1000))


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusBlock:
    """The engine's state under the control block.

    `seq` is that of the control block in force (0: none), `cap` the limit on running requests, `token_budget` the most
    tokens per step, `refused` the number of unreadable blocks and `faults` the number of exceptions caught.
    """

    seq: int
    cap: int
    token_budget: int
    running: int
    waiting: int
    steps: int
    refused: int
    faults: int

    def pack(self) -> bytes:
        numbers = (self.cap, self.token_budget, self.running, self.waiting)
        head = (b"HMST", _VERSION, 0, self.seq, *map(_u32, numbers))
        return _seal(_STATUS.pack(*head, self.steps, _u32(self.refused), _u32(self.faults)))

    @staticmethod
    def unpack(data: bytes) -> "StatusBlock | None":
        if not _sound(data, b"HMST"):
            return None
        _, _, _, seq, cap, token_budget, running, waiting, steps, refused, faults = _STATUS.unpack_from(data)
        return StatusBlock(
            seq=seq,
            cap=cap,
            token_budget=token_budget,
            running=running,
            waiting=waiting,
            steps=steps,
            refused=refused,
            faults=faults,
        )


def _u32(value: int) -> int:
    return min(_U32, max(0, value))


def _seal(body: bytes) -> bytes:
    body = body.ljust(_BODY, b"\0")
    return body + _CHECKSUM.pack(zlib.crc32(body))


def _sound(data: bytes, magic: bytes) -> bool:
    return (
        len(data) == BLOCK_BYTES
        and data[:4] == magic
        and struct.unpack_from("<H", data, 4)[0] == _VERSION
        and _CHECKSUM.unpack_from(data, _BODY)[0] == zlib.crc32(data[:_BODY])
    )
