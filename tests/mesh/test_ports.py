"""Ports that processes of a mesh will bind a moment later."""

import os
import socket
import subprocess
import sys
from collections import deque

import pytest

from hmas.mesh import ports
from hmas.mesh.ports import free_port


def test_a_port_that_is_taken_is_not_given_again() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) != port
    assert free_port(port) == port


def test_no_outgoing_connection_takes_a_free_port() -> None:
    """A port that the system itself picks would be given to the next connection of any process."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    assert all(free_port() < lowest for _ in range(50))


def test_a_port_is_drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by this process nor by another, although nothing has bound it yet; a port that is wished for is given."""
    first = free_port()
    few = range(first, first + 10)
    monkeypatch.setattr(ports, "_PORTS", few)
    drawn = [port for _ in range(12) if (port := free_port()) in few]
    assert len(drawn) == len(set(drawn)) > 5
    other = f"from hmas.mesh import ports; ports._PORTS = {drawn}; print(ports.free_port())"
    printed = subprocess.run([sys.executable, "-c", other], capture_output=True, text=True, check=True).stdout
    assert int(printed) not in drawn
    assert free_port(drawn[0]) == drawn[0]


def test_the_last_ones_alone_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_reserved", deque())
    monkeypatch.setattr(ports, "_MOST_RESERVED", 2)
    drawn = [free_port() for _ in range(4)]
    bound = [is_bound(port) for port in drawn]
    for held in ports._reserved:
        os.close(held)
    assert bound == [False, False, True, True]


def is_bound(port: int) -> bool:
    with socket.socket(type=socket.SOCK_DGRAM) as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
