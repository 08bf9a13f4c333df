"""Ports that processes will bind a moment later."""

import os
import socket
from collections import deque
from secrets import choice

# Above those of well-known services, below those that systems give to outgoing connections (Linux 32768, IANA 49152).
_PORTS = range(20_000, 32_768)
_DRAWS = 100
_reserved: deque[int] = deque()  # file descriptors
_MOST_RESERVED = 256


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(preferred: int = 0, host: str = "127.0.0.1") -> int:
    """Returns `preferred` if it is free, otherwise (also for 0) a free port drawn at random from those that no
    outgoing connection gets, and that nobody else draws, so that it is still free when its process binds it."""
    if preferred and is_free(preferred, host):
        return preferred
    for _ in range(_DRAWS):
        port = choice(_PORTS)
        if is_free(port, host) and _reserve(port, host):
            return port
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _reserve(port: int, host: str) -> bool:
    """Binds the UDP port of the same number while this process lives, for the last 256 ports that it drew; False if it
    is taken, as by another mesh that starts at this moment."""
    held = socket.socket(type=socket.SOCK_DGRAM)
    try:
        held.bind((host, port))
    except OSError:
        held.close()
        return False
    _reserved.append(held.detach())
    if len(_reserved) > _MOST_RESERVED:
        os.close(_reserved.popleft())
    return True
