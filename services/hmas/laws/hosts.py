"""Which texts can be the host of a URL."""


def can_be_resolved(host: str) -> bool:
    """Returns whether a resolver takes a host's name: each label has 1 to 63 characters. It raises UnicodeError of
    others, not OSError."""
    try:
        host.encode("idna")  # as `socket.getaddrinfo` does
    except UnicodeError:
        return False
    return bool(host)
