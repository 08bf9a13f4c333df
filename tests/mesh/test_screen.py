"""What `hmas up` shows, while its terminal takes output and while it does not."""

import os
import threading
import time

from hmas.mesh.screen import MAX_LINES, Screen


def read_all(fd: int, found: list[bytes]) -> None:
    while data := os.read(fd, 65_536):
        found.append(data)


def test_texts_come_in_order_and_close_waits_for_the_last() -> None:
    reader, writer = os.pipe()
    screen = Screen(writer)
    for i in range(100):
        screen.say(f"line {i}\n")
    screen.close()
    assert os.read(reader, 65_536).decode().splitlines() == [f"line {i}" for i in range(100)]
    os.close(reader)
    os.close(writer)


def test_a_stopped_terminal_holds_nobody_up_and_what_it_missed_is_counted() -> None:
    reader, writer = os.pipe()  # whose reader stands still: 64 KiB fit
    screen = Screen(writer)
    started_s = time.monotonic()
    for i in range(3 * MAX_LINES):
        screen.say(f"line {i} {'x' * 200}\n")
    screen.close()
    print(f"3,000 lines and close took {time.monotonic() - started_s:.2f} s")
    found: list[bytes] = []
    going_on = threading.Thread(target=read_all, args=(reader, found))
    going_on.start()
    while screen._waiting.unfinished_tasks:
        time.sleep(0.01)
    screen.say("the last\n")
    screen.close()
    os.close(writer)
    going_on.join()
    text = b"".join(found).decode()
    assert "lines left out" in text
    assert text.endswith("the last\n")


def test_a_reader_that_went_away_is_no_error() -> None:
    reader, writer = os.pipe()
    screen = Screen(writer)
    os.close(reader)
    for _ in range(2 * MAX_LINES):
        screen.say("hello\n")
    screen.close()
    os.close(writer)
