"""Usage by day, tenant and API key: what counts, what a restart keeps, what a bad disk or file does, the export."""

import asyncio
import csv
from functools import partial
from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from hmas.contracts.request import Slo
from hmas.contracts.telemetry import RequestSettled
from hmas.gateway.tenants.keys import make_key
from hmas.gateway.usage import book as book_module
from hmas.gateway.usage.book import COUNTS, OTHER, UsageBook, UsageCounts, UsageKey, Used
from hmas.gateway.usage.cli import app
from hmas.gateway.usage.files import COLUMNS, UsageFileError, UsageFiles, read_file, read_folder
from tests.builders.telemetry import request_settled
from tests.gateway.gateway_harness import CHAT, DONE, PATH, STREAMED, client, event, gateway, last, stream, usage
from tests.worker.adapters.scripted_engine import Peer

DAY_S = 86_400.0
NOON_S = 1_801_396_800.0  # 2027-01-31T12:00:00Z
NOTHING = UsageCounts()


def settled(tenant: str = "acme", output_tokens: int = 20) -> RequestSettled:
    return request_settled(
        tenant=tenant, slo=Slo(1.0, 0.05), prompt_tokens=10, output_tokens=output_tokens, predicted_output_tokens=20.0,
        ttft_s=0.5, tpot_s=0.01, last_token_s=1.0,
    )  # fmt: skip


def test_counts() -> None:
    book = UsageBook()
    book.count(NOON_S, Used("k1", True, 4), settled(), "ok")
    book.count(NOON_S, Used("k1", True, 0), settled(), "ttft_missed")
    book.count(NOON_S, Used("k1", False, 0), settled(output_tokens=0), "failed")
    book.count(NOON_S, Used("k2", True, 0), settled(), "unjudged")
    book.count(NOON_S + DAY_S, Used("k1", True, 0), settled("zeta"), "ok")
    assert book.changed() == {
        "2027-01-31": {
            UsageKey("2027-01-31", "acme", "k1"): UsageCounts(
                requests=3, on_time=1, late=2, prompt_tokens=20, cached_tokens=4, output_tokens=40
            ),
            UsageKey("2027-01-31", "acme", "k2"): UsageCounts(
                requests=1, unjudged=1, prompt_tokens=10, output_tokens=20
            ),
        },
        "2027-02-01": {
            UsageKey("2027-02-01", "zeta", "k1"): UsageCounts(requests=1, on_time=1, prompt_tokens=10, output_tokens=20)
        },
    }


def test_the_rows_of_a_day_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(book_module, "MAX_ROWS", 2)
    book = UsageBook()
    for i in range(5):
        book.count(NOON_S, Used(f"k{i}", True, 0), settled(), "ok")
    (rows,) = book.changed().values()
    assert {row.key: counts.requests for row, counts in rows.items()} == {"k0": 1, "k1": 1, OTHER: 3}


async def test_a_restart_goes_on_where_the_file_was(tmp_path: Path) -> None:
    now_s = NOON_S
    for restart in range(3):
        book = UsageBook()
        files = UsageFiles(tmp_path, "gateway/1", book, lambda: now_s)
        for _ in range(restart + 1):
            book.count(now_s, Used("k1", True, 1), settled(), "ok")
        await files.write()
        await files.write()
    (path,) = tmp_path.iterdir()
    assert path.name == "usage-2027-01-31.gateway_1.csv"
    assert path.stat().st_mode & 0o777 == 0o600
    (counts,) = read_file(path).values()
    assert (counts.requests, counts.prompt_tokens, counts.cached_tokens, counts.output_tokens) == (6, 60, 6, 120)


async def test_each_day_has_its_file_and_is_forgotten_when_it_is_over(tmp_path: Path) -> None:
    now_s = NOON_S
    book = UsageBook()
    files = UsageFiles(tmp_path, "g", book, lambda: now_s)
    book.count(now_s, Used("k1", True, 0), settled(), "ok")
    await files.write()
    now_s += DAY_S
    book.count(now_s, Used("k1", True, 0), settled(), "ok")
    book.count(now_s - DAY_S, Used("k1", True, 0), settled(), "ok")
    await files.write()
    days = {path.name: [c.requests for c in read_file(path).values()] for path in tmp_path.iterdir()}
    assert days == {"usage-2027-01-31.g.csv": [2], "usage-2027-02-01.g.csv": [1]}
    assert book.changed() == {}
    assert list(book._days) == ["2027-02-01"]


async def test_a_disk_that_takes_nothing_costs_nothing_but_a_line_in_the_log(tmp_path: Path) -> None:
    now_s = NOON_S
    book = UsageBook()
    files = UsageFiles(tmp_path / "usage", "g", book, lambda: now_s)
    (tmp_path / "usage").rmdir()
    (tmp_path / "usage").write_text("in the way")
    with capture_logs() as logs:
        for _ in range(12):
            book.count(now_s, Used("k1", True, 0), settled(), "ok")
            await files.write()
            now_s += DAY_S
    assert [entry["event"] for entry in logs] == ["usage_not_written"]
    assert len(book.changed()) <= 9
    (tmp_path / "usage").unlink()
    (tmp_path / "usage").mkdir()
    await files.write()
    assert sum(counts.requests for counts in read_folder(tmp_path / "usage", "", "").values()) >= 8


@pytest.mark.parametrize(
    "text",
    ["nonsense", ",".join(COLUMNS) + "\n1,2", ",".join(COLUMNS) + "\nd,t,k,1,1,1,1,1,1,-1\n", "\0", '"'],
)
async def test_a_damaged_file_is_put_aside(text: str, tmp_path: Path) -> None:
    path = tmp_path / "usage-2027-01-31.g.csv"
    path.write_text(text)
    with pytest.raises(UsageFileError, match="usage-2027-01-31"):
        read_file(path)
    book = UsageBook()
    with capture_logs() as logs:
        files = UsageFiles(tmp_path, "g", book, lambda: NOON_S)
    assert [entry["event"] for entry in logs] == ["usage_damaged"]
    book.count(NOON_S, Used("k1", True, 0), settled(), "ok")
    await files.write()
    assert len(list(tmp_path.iterdir())) == 2
    assert len(read_folder(tmp_path, "", "")) == 1


async def written(tmp_path: Path) -> None:
    for gateway_name, day in (("g1", 0), ("g2", 0), ("g1", 1), ("g1", 2)):
        book, at_s = UsageBook(), NOON_S + day * DAY_S
        files = UsageFiles(tmp_path, gateway_name, book, partial(float, at_s))
        book.count(at_s, Used("k1", True, 3), settled("a,b"), "ok")
        await files.write()


async def test_the_export_sums_gateways(tmp_path: Path) -> None:
    await written(tmp_path)
    folder, cli = ["--dir", str(tmp_path)], CliRunner()
    told = await asyncio.to_thread(cli.invoke, app, ["export", *folder])
    rows = list(csv.reader(StringIO(told.stdout)))
    assert rows[0] == list(COLUMNS)
    assert [row[:4] for row in rows[1:]] == [
        ["2027-01-31", "a,b", "k1", "2"], ["2027-02-01", "a,b", "k1", "1"], ["2027-02-02", "a,b", "k1", "1"]
    ]  # fmt: skip
    days = ["--since", "2027-02-01", "--until", "2027-02-01"]
    out = tmp_path / "usage.parquet"
    assert (await asyncio.to_thread(cli.invoke, app, ["export", *folder, *days, "--out", str(out)])).exit_code == 0
    (row,) = pq.read_table(out).to_pylist()
    assert (str(row["day"]), row["tenant"], row["key"]) == ("2027-02-01", "a,b", "k1")
    assert {name: row[name] for name in COUNTS} == {
        "requests": 1, "on_time": 1, "late": 0, "unjudged": 0, "prompt_tokens": 10, "cached_tokens": 3,
        "output_tokens": 20,
    }  # fmt: skip
    shown = await asyncio.to_thread(cli.invoke, app, ["show", *folder])
    assert "a,b" in shown.stdout
    for wrong in (["--since", "soon"], ["--out", "usage.xls"], ["--dir", str(tmp_path / "none")]):
        assert (await asyncio.to_thread(cli.invoke, app, ["export", *folder, *wrong])).exit_code != 0


@pytest.mark.parametrize("given_up", [True, False])
async def test_what_an_engine_claims_falsely_is_not_booked(given_up: bool) -> None:
    """An answer that it gave up is no request on time, and no more of a prompt was cached than there is."""

    async def behave(peer: Peer) -> None:
        ends = event(1).replace(b"}}", b'},"finish_reason":"abort"}') if given_up else last(1)
        await stream(peer, event(0), ends, usage(2, prompt=128, cached=2_000_002_000), DONE)

    book = UsageBook()
    async with gateway(behave=behave, usage_book=book) as g, client(g) as c:
        got = await c.post(PATH, json=STREAMED)
        assert (b"engine_error" in got.content) is given_up
        await g.until(lambda: bool(book.changed()))
    ((_, counts),) = next(iter(book.changed().values())).items()
    assert (counts.requests, counts.on_time, counts.late) == (1, not given_up, given_up)
    assert (counts.cached_tokens, counts.output_tokens) == (0, 1 if given_up else 2)
    assert counts.prompt_tokens < 100  # the gateway's own estimate


async def test_what_the_gateway_books(tmp_path: Path) -> None:
    """A stream with cached tokens, a plain answer, a request that an engine never ran, and one of an unknown model."""

    async def behave(peer: Peer) -> None:
        await stream(peer, event(0), last(1), usage(2, prompt=50, cached=30), DONE)

    path = tmp_path / "tenants.yaml"
    path.write_text("tenants: {acme: {requests_per_min: 2}}")
    key = make_key(path, "acme")
    headers = {"authorization": f"Bearer {key.key}"}
    book = UsageBook()
    async with (
        gateway(tenants_file=path, behave=behave, kept=0, usage_book=book) as g,
        client(g) as c,
    ):
        assert (await c.post(PATH, json=STREAMED, headers=headers)).status_code == 200
        assert (await c.post(PATH, json={**CHAT, "model": "nobody"}, headers=headers)).status_code == 404
        assert (await c.post(PATH, json=STREAMED, headers=headers)).status_code == 200
        assert (await c.post(PATH, json=STREAMED, headers=headers)).status_code == 429
        await g.until(lambda: sum(c.requests for day in book.changed().values() for c in day.values()) == 3)
    ((row, counts),) = next(iter(book.changed().values())).items()
    assert (row.tenant, row.key) == ("acme", key.id)
    assert (counts.requests, counts.on_time, counts.late) == (3, 2, 1)
    assert (counts.prompt_tokens, counts.cached_tokens, counts.output_tokens) == (100, 60, 4)
