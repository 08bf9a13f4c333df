"""Ids are minted here, at the edge, and nowhere else."""

import os
import socket
import uuid


def request_id() -> str:
    """A fresh request id; 128 random bits."""
    return f"req-{os.urandom(16).hex()}"


def instance_name(service: str) -> str:
    """A name for a process that was given none: unique enough among the processes of one mesh."""
    return f"{service}-{socket.gethostname()}-{os.getpid()}"


def incarnation() -> str:
    """Changes at each start of a process, so that a restart is told from a pause."""
    return uuid.uuid4().hex[:16]
