"""The image built and the mesh started as a user does it, once for the suite; or a skip that says why not."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.compose.docker import Stack, Unavailable, compose_command, has_image

START_TIMEOUT_S = 180.0


@pytest.fixture(scope="session")
def stack() -> Iterator[Stack]:
    with running(build=True) as stack:
        yield stack


@pytest.fixture(scope="session")
def tls_stack() -> Iterator[Stack]:
    """The same with TLS, of the image that the other has built."""
    with running("docker-compose.tls.yml", build=False) as stack:
        yield stack


@contextmanager
def running(*files: str, build: bool) -> Iterator[Stack]:
    try:
        stack = Stack(compose_command(), *files)
    except Unavailable as reason:
        pytest.skip(f"no containers here: {reason}")
    try:
        if build or not has_image(stack.image):
            stack.compose("build", timeout_s=1200)
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
