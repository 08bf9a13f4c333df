"""The image built and the mesh started as a user does it, once for the suite; or a skip that says why not."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.compose.docker import Stack, Unavailable, compose_command

START_TIMEOUT_S = 180.0


@pytest.fixture(scope="session")
def image() -> str:
    """The name of the image, built."""
    stack = available()
    stack.compose("build", timeout_s=1200)
    return stack.image


@pytest.fixture(scope="session")
def stack(image: str) -> Iterator[Stack]:
    with running() as stack:
        yield stack


@pytest.fixture(scope="session")
def tls_stack(image: str) -> Iterator[Stack]:
    """The same with TLS."""
    with running("docker-compose.tls.yml") as stack:
        yield stack


def available(*files: str) -> Stack:
    try:
        return Stack(compose_command(), *files)
    except Unavailable as reason:
        pytest.skip(f"no containers here: {reason}")


@contextmanager
def running(*files: str) -> Iterator[Stack]:
    stack = available(*files)
    try:
        stack.compose("up", "-d")
        wait_healthy(stack, stack.services(), START_TIMEOUT_S)
        yield stack
    except BaseException:
        print(stack.compose("logs", "--tail=20"))
        raise
    finally:
        stack.compose("down", "--volumes", "--remove-orphans")


def wait_healthy(stack: Stack, services: list[str], timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while waiting := [s for s in services if not stack.healthy(s)]:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"not healthy after {timeout_s:.0f} s: {', '.join(waiting)}")
        time.sleep(0.5)
