"""What-ifs of the console: one at a time, within a time limit and a size, by the command that an operator uses."""

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest
from fastapi import HTTPException

from hmas.console import rehearsals
from hmas.console.question import MAX_KEPT, WhatIfAnswer, WhatIfBook, WhatIfQuestion
from hmas.console.rehearsals import COMMAND, WhatIfRunner, lacking
from hmas.runtime.priority import LOW, LOWEST
from tests.conftest import PATIENCE_S
from tests.console.heard import rehearsal

ASKED = WhatIfQuestion(pool="m", topology="edf")


def command(source: str) -> tuple[str, ...]:
    return (sys.executable, "-c", source)


def telling(found: object, status: int) -> tuple[str, ...]:
    """A command that prints its options to the error stream, and an answer."""
    return command(f"import sys; print(sys.argv, file=sys.stderr); print({found!r}); sys.exit({status})")


async def answered(argv: tuple[str, ...], question: WhatIfQuestion = ASKED) -> WhatIfAnswer:
    book = WhatIfBook()
    runner = WhatIfRunner(book, lambda: 9.0, ("--nats-url=nats://nowhere:1",), argv)
    runner.start(question)
    assert runner._task is not None
    await runner._task
    assert book.running is None
    return book.told[question]


@pytest.mark.parametrize(("status", "abstains"), [(0, ""), (3, "it misses by 9 points")])
async def test_an_answer_and_an_abstention_are_kept(status: int, abstains: str) -> None:
    found = rehearsal(abstains=abstains)
    out = json.dumps({"pool": "m", "in_force_policy": "fcfs", **asdict(found)})
    assert await answered(telling(out, status)) == WhatIfAnswer(9.0, found, "fcfs")


async def test_a_failure_is_told_in_the_words_of_the_command() -> None:
    told = await answered(command("import sys; sys.exit('hmas: no copy of qos tells its past requests')"))
    assert (told.found, told.error) == (None, "no copy of qos tells its past requests")
    assert "Invalid JSON" in (await answered(telling("no answer", 0))).error
    assert "null byte" in (await answered(telling("", 0), WhatIfQuestion(pool="m", slo="\0"))).error
    assert "status 7" in (await answered(command("import sys; sys.exit(7)"))).error


async def test_one_runs_at_a_time_and_gives_way(tmp_path: Path) -> None:
    book, file = WhatIfBook(), tmp_path / "nice"
    session = "open('/proc/self/autogroup').read().split()[-1] if os.path.exists('/proc/self/autogroup') else 5"
    told = f"open({str(file)!r}, 'w').write(' '.join(map(str, (os.nice(0), {session}))))"
    source = f"import os, time; time.sleep(0.5); {told}; time.sleep(60)"
    runner = WhatIfRunner(book, lambda: 9.0, (), command(source))
    runner.start(ASKED)
    for question in (ASKED, WhatIfQuestion(pool="other")):
        with pytest.raises(HTTPException, match="429: one what-if runs already"):
            runner.start(question)
    async with asyncio.timeout(PATIENCE_S):
        while not file.exists() or not file.read_text():
            await asyncio.sleep(0.05)
    assert file.read_text() == f"{LOWEST} {LOW}"
    await runner.close()
    assert book.running is None
    assert "stopped" in book.told[ASKED].error


async def test_what_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "LIMIT_S", 0.5)
    told = await answered(command("import time; time.sleep(600)"))
    assert told.error == "it took longer than 0.5 s: choose fewer minutes"


async def test_an_answer_without_end_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsals, "MAX_ANSWER_BYTES", 10_000)
    assert "more than 10000 bytes" in (await answered(command("while True: print('x' * 4096)"))).error


async def test_without_the_simulator_nothing_is_started() -> None:
    assert lacking() == ""
    book = WhatIfBook(lacks=lacking(("json", "no_such_package")))
    with pytest.raises(HTTPException, match=r"no_such_package is missing: .*pip install .*\[sim\]"):
        WhatIfRunner(book, lambda: 9.0, (), command("")).start(ASKED)
    assert book.running is None


async def test_the_command_is_the_operators_own() -> None:
    """The mesh is nowhere: the command says so itself, and takes every option."""
    every = WhatIfQuestion(
        pool="m", minutes="60", topology="edf", objective="tokens", engines="-1", slo="chat:ttft=800"
    )
    told = await answered((*COMMAND, "--profile=tiny-emulated"), every)
    assert "the mesh's NATS server does not answer" in told.error


def test_the_last_answers_are_kept() -> None:
    book = WhatIfBook()
    questions = [WhatIfQuestion(pool=f"m{number}") for number in range(MAX_KEPT + 3)]
    for question in questions:
        book.begin(1.0, question)
        book.end(WhatIfAnswer(2.0))
    assert list(book.told) == questions[3:]
