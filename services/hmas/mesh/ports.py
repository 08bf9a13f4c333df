"""Ports that processes will bind a moment later."""

import errno
import os
import socket
from collections import deque
from secrets import choice

# Above those of well-known services, below those that systems give to outgoing connections (Linux 32768, IANA 49152).
_PORTS = range(20_000, 32_768)
_DRAWS = 100
_reserved: deque[int] = deque()  # file descriptors
_MOST_RESERVED = 256


class PortRefused(ValueError):
    """A port that was asked for cannot be bound. The message is one line and says what to do."""


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Returns whether a server could bind the port on the address, or the name, `host`."""
    try:
        _bind(port, host)
    except OSError:
        return False
    return True


def check_wanted(port: int, host: str, option: str) -> None:
    """Raises PortRefused if a port that `option` asks for cannot be bound on `host`."""
    try:
        _bind(port, host)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            advice = f"end what listens there on {host}, or give another {option} (0: any free port)"
            raise PortRefused(f"port {port} is taken: {advice}") from None
        raise PortRefused(f"port {port} cannot be opened on {host}: {error.strerror or error}") from None


def _bind(port: int, host: str) -> None:
    """Binds the port for a moment. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


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
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _reserve(port: int, host: str) -> bool:
    """Binds the UDP port of the same number while this process lives, for the last 256 ports that it drew; False if it
    is taken, as by another mesh that starts at this moment."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_PASSIVE)[0]
    held = socket.socket(family, socket.SOCK_DGRAM)
    try:
        held.bind(address)
    except OSError:
        held.close()
        return False
    _reserved.append(held.detach())
    if len(_reserved) > _MOST_RESERVED:
        os.close(_reserved.popleft())
    return True
