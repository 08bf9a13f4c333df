"""Control blocks as no worker writes them."""

import os
import random
import struct
import zlib
from pathlib import Path

from hmas.plugins.vllm.block import ControlBlock

NUMBERS = (0, 1, 2, 7, 64, 65, 2**31, 2**32 - 1)


def hostile_write(control: Path, draw: random.Random, *, clear: bool = False) -> None:
    """Puts something random in the block's place; `clear` takes it away."""
    if control.is_dir():
        control.rmdir()
    elif control.is_fifo():
        control.unlink()
    kind = 5 if clear else draw.randrange(10)
    match kind:
        case 0 | 1 | 2 | 3:  # sound, with any values
            control.write_bytes(_any_block(draw).pack())
        case 4:
            control.write_bytes(draw.randbytes(draw.choice([0, 1, 63, 64, 65, 4096])))
        case 5:
            control.unlink(missing_ok=True)
        case 6:  # torn: halves of two blocks
            control.write_bytes(_any_block(draw).pack()[:32] + _any_block(draw).pack()[32:])
        case 7:  # a sound checksum over another version
            body = struct.pack("<4sHHQIII", b"HMAS", 9, 0, 1, _number(draw), _number(draw), 1000).ljust(60, b"\0")
            control.write_bytes(body + struct.pack("<I", zlib.crc32(body)))
        case 8:
            control.unlink(missing_ok=True)
            os.mkfifo(control)
        case _:
            control.unlink(missing_ok=True)
            control.mkdir()


def _any_block(draw: random.Random) -> ControlBlock:
    return ControlBlock(draw.randrange(2**64), _number(draw), _number(draw), draw.uniform(-5, 1e9))


def _number(draw: random.Random) -> int:
    return draw.choice([*NUMBERS, draw.randrange(2**32)])
