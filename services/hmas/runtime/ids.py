"""Makes ids of requests and processes. Agents never make ids, so that they stay deterministic."""

import os
import socket
import uuid


def request_id() -> str:
    """Returns a new request id with 128 random bits."""
    return f"req-{os.urandom(16).hex()}"


def instance_name(service: str) -> str:
    """Returns a name for a process whose setting HMAS_INSTANCE is empty: service, host name and process id, which no
    two running processes of a mesh share."""
    return f"{service}-{socket.gethostname()}-{os.getpid()}"


def incarnation() -> str:
    """Returns a new random incarnation. A process makes one at its start, so that others can tell a restart from a
    pause."""
    return uuid.uuid4().hex[:16]
