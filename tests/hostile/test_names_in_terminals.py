"""Names that clients, tenants and engines choose are text in a terminal and in a log: they are no markup, and steer
nothing."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from hmas.contracts.control import TopologyName
from hmas.gateway.usage.book import UsageCounts
from hmas.gateway.usage.cli import usage_table
from hmas.mesh.top.view import render_top
from hmas.operator.jobs import render_jobs
from hmas.operator.mesh_view import MeshView
from hmas.operator.why import render_why
from hmas.runtime.harmless_text import harmless, harmless_lines
from tests.builders import views
from tests.console.heard import JOB, SAMPLE, decision, heartbeat, telemetry

STEERS = "\x1b]0;mine\x07\x1b[2J\x9b1m\r\u202e\x00"
HOSTILE = [STEERS, "[/]", "[/bold]", "[link=http://elsewhere]here[/link]", "[red]", "a\nb", "<script>alert(1)</script>"]


STEERING = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]")
RICHS_OWN = re.compile(r"\x1b\[[0-9;]*m")  # bold, dim and italic


def shown(picture: RenderableType) -> str:
    out = StringIO()
    Console(file=out, force_terminal=True, no_color=True, width=400).print(picture)
    return out.getvalue()


def top(name: str) -> RenderableType:
    model = MeshView()
    share = replace(views.share_view(), name=name)
    model.hear(1.0, heartbeat(name))
    model.hear(1.0, telemetry(name, replace(SAMPLE, engine=name)))
    model.hear(1.0, replace(views.v_long(), pool=name, tenants=(share,), tasks=(share,)))
    for topology in (TopologyName.EDF, TopologyName.SJF):
        model.hear(1.0, replace(decision(topology, reason=name), pool=name))
    model.jobs = [replace(JOB, tenant=name, template=name)]
    return render_top(model, 2.0)


def jobs(name: str) -> RenderableType:
    row = replace(JOB, tenant=name, model=name, template=name, request_id=name, running=1)
    return render_jobs([row, replace(row, job="other", running=0)], 9)


def why(name: str) -> RenderableType:
    told = {"worker": name, "outcome": None}
    return render_why(
        {"request_id": name, "model": name, "slo": {"tier": name}, "attempts": [told], "runs": [{**told, "in": told}]}
    )


def usage(name: str) -> RenderableType:
    return usage_table({(name, name): UsageCounts()})


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
@pytest.mark.parametrize("picture", [top, jobs, why, usage])
def test_a_table_shows_a_hostile_name_as_it_is_written(picture: Callable[[str], RenderableType], name: str) -> None:
    text = shown(picture(name))
    assert "".join(harmless(name).split()) in "".join(RICHS_OWN.sub("", text).split())
    assert not STEERING.search(RICHS_OWN.sub("", text))


def test_a_log_line_steers_no_terminal(tmp_path: Path) -> None:
    code = (
        "import logging, structlog; from hmas.runtime.logs import configure_logs\n"
        "configure_logs('worker', 'w1', 'info', 'console')\n"
        f"structlog.get_logger().warning('request_failed', message={STEERS!r})\n"
        f"logging.getLogger('library').error('it says ' + {STEERS!r})\n"
        f"try: raise ValueError({STEERS!r})\n"
        "except ValueError: structlog.get_logger().exception('step_failed')\n"
    )
    path = tmp_path / "log"
    with path.open("w") as file:
        subprocess.run([sys.executable, "-c", code], stderr=file, check=True)
    text = path.read_text()
    assert text.count(r"\x1b]0;mine") == 3
    assert not STEERING.search(text)


def test_colours_of_a_terminal_stay() -> None:
    coloured = "\x1b[31mred\x1b[0m\tand on\n"
    assert harmless_lines(coloured, coloured=True) == coloured
    assert harmless_lines(coloured) == coloured.replace("\x1b", r"\x1b")
    assert harmless_lines(STEERS, coloured=True) == harmless(STEERS)
    ours, theirs = os.openpty()
    code = "from hmas.runtime.logs import LogStream; LogStream(2).write('\\x1b[1mbold\\x1b[0m \\x1b[2J')"
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True)
    assert os.read(ours, 99) == b"\x1b[1mbold\x1b[0m \\x1b[2J"
    os.close(ours)
    os.close(theirs)
