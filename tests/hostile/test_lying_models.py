"""`hmas up` asks engines for their models, and they lie: names that are none, 10,000 of them, an answer without end, a
byte now and then."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from hmas.mesh import up
from hmas.mesh.options import MeshOptions
from hmas.mesh.up import NotUp, card_of, with_model


@contextmanager
def engine(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """An engine that answers each connection by `answer`, until it is closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                way, _ = listener.accept()
                threading.Thread(target=talk, args=(way,), daemon=True).start()

    def talk(way: socket.socket) -> None:
        with suppress(OSError), way:
            way.recv(65536)
            answer(way)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def listing(*names: str) -> Callable[[socket.socket], None]:
    body = json.dumps({"data": [{"id": name} for name in names]}).encode()
    return lambda way: way.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def trickling(begin: bytes, more: bytes) -> Callable[[socket.socket], None]:
    def answer(way: socket.socket) -> None:
        way.sendall(begin)
        while True:
            way.sendall(more)
            time.sleep(0.02)

    return answer


def endless(way: socket.socket) -> None:
    way.sendall(b"HTTP/1.1 200 OK\r\n\r\n[")
    while True:
        way.sendall(b"[" * 2**20)


@pytest.mark.parametrize(
    "name", ["", "a\nb", "a\0", "\x1b[2J", "\u202e", "x" * 257, "x" * 10**6], ids=lambda n: ascii(n[:9])
)
def test_what_cannot_be_a_name_is_refused(name: str) -> None:
    with engine(listing(name)) as url, pytest.raises(ValueError, match="--model") as raised:
        with_model(MeshOptions(engine_urls=(url,)))
    assert not isinstance(raised.value, NotUp)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 400


def test_of_ten_thousand_models_the_first_is_served() -> None:
    with engine(listing(*(f"<b>{number}</b>" for number in range(10_000)))) as url:
        assert with_model(MeshOptions(engine_urls=(url,))).pool == "<b>0</b>"


@pytest.mark.parametrize(
    "answer",
    [
        trickling(b"", b"H"),
        trickling(b"HTTP/1.1 200 OK\r\nx: ", b"y"),
        trickling(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n"),
        trickling(b"HTTP/1.1 200 OK\r\n\r\n", b"["),
        trickling(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n[\r\n"),
        trickling(b"HTTP/1.1 200 OK\r\ncontent-length: 999999\r\n\r\n", b"["),
    ],
)
def test_an_answer_that_trickles_is_given_up(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(up, "ANSWER_S", 0.3)
    with engine(answer) as url, pytest.raises(ValueError, match=r"took longer than|does not list"):
        card_of(url, "")


@pytest.mark.parametrize("body", [b"[" * 100_000, b'{"data": 1}', b'{"data": [[]]}', b"\xff"])
def test_what_is_no_list_is_refused_in_words(body: bytes) -> None:
    def answer(way: socket.socket) -> None:
        way.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)

    with engine(answer) as url, pytest.raises(ValueError, match="does not list its model"):
        card_of(url, "")


def test_an_answer_without_end_is_not_read_on() -> None:
    with engine(endless) as url, pytest.raises(ValueError, match=f"longer than {up.MAX_ANSWER_BYTES} bytes"):
        card_of(url, "")


def test_a_reason_of_the_engine_is_not_shown() -> None:
    def answer(way: socket.socket) -> None:
        way.sendall(b"HTTP/1.1 503 \x1b]0;mine\x07\r\ncontent-length: 0\r\n\r\n")

    with engine(answer) as url, pytest.raises(NotUp, match="status 503"):
        card_of(url, "")
