"""Ports that processes of a mesh will bind a moment later."""

import socket

from hmas.mesh.nats_server import free_port


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
    ports = {free_port() for _ in range(50)}
    assert all(port < lowest for port in ports)
    assert len(ports) > 40  # two meshes that start at once hardly ever draw the same
