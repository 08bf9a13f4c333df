"""The same overloaded minute without and with the mesh's scheduling, as the page Now shows it: the engines get requests
as they come (`HMAS_MODE=observe`), and in the order of H-MAS. `HMAS_PICTURE` names the file for the picture of both,
that of the README; without it the test is skipped."""

import base64
import html
import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import HMAS
from tests.console.browsing import PATIENCE_MS, answering, needs_browser

playwright = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
pytestmark = [
    *needs_browser,
    pytest.mark.timeout(500),
    pytest.mark.skipif(
        "HMAS_PICTURE" not in os.environ, reason="it draws a picture of README: HMAS_PICTURE names its file"
    ),
]
RATE_RPS, MINUTE_S, DRAIN_S = 9.5, 60, 20  # more than two emulated engines can serve
SEEN_S = 57  # while requests still come
LEAST_GAIN = 0.2
WIDTH = 700
HIDE = "which => document.querySelectorAll(which).forEach(node => node.style.display = 'none')"
SIDES = {
    "observe": "the engines alone",
    "schedule": "the same engines, scheduled",
}


def minute(chromium: Any, mesh: Any, out: Path) -> tuple[bytes, float]:
    """Returns the page Now towards the end of the minute, as PNG, and the share of its requests that were on time."""
    url = answering(str(mesh.state["console_url"]))
    token = (Path(mesh.directory) / "secrets" / "console").read_text()
    page = chromium.new_page(viewport={"width": WIDTH, "height": 1200}, color_scheme="light")
    page.set_default_timeout(PATIENCE_MS)
    page.goto(f"{url}/#token={token}")
    page.wait_for_selector(".tile")
    command = [
        HMAS, "load", "run", "azure-like", "--url", mesh.url, "--replay-field", "--send-slo", "--seed", "1", "--rate",
        str(RATE_RPS), "--duration", str(MINUTE_S), "--drain", str(DRAIN_S), "--out", str(out),
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as load:
        running = page.locator(".stats div").filter(has=page.get_by_text("running", exact=True)).locator("dd")
        playwright.expect(running).not_to_have_text(re.compile("^(0|–)$"))
        began_s = time.monotonic()
        page.evaluate(
            "document.querySelectorAll('main > :is(h2, label, .tiles, details)').forEach(n => n.style.display = 'none')"
        )
        page.wait_for_timeout(1e3 * SEEN_S)
        below = page.get_by_role("region", name="attainment by tenant").bounding_box()["y"]
        top = page.locator("main").bounding_box()["y"]
        shown = page.screenshot(clip={"x": 0, "y": top, "width": WIDTH, "height": below - top})
        said, _ = load.communicate(timeout=MINUTE_S + DRAIN_S + began_s - time.monotonic() + 60)
        assert load.returncode == 0, said
    page.close()
    return shown, share_on_time(out)


def share_on_time(out: Path) -> float:
    summary = json.loads((out / "summary.json").read_text())
    return float(summary["score"]["goodput_rate"])


def test_a_minute_without_and_with(
    chromium: Any, start_mesh: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: dict[str, bytes] = {}
    shares: dict[str, float] = {}
    for mode in SIDES:
        env = {"HMAS_MODE": mode}
        with start_mesh(tmp_path / mode, "--console-port", "0", "--replay", env=env) as mesh:
            shown[mode], shares[mode] = minute(chromium, mesh, tmp_path / mode / "load")
    with capsys.disabled():
        print(f"\non time: {shares['observe']:.0%} without, {shares['schedule']:.0%} with")
    Path(os.environ["HMAS_PICTURE"]).write_bytes(beside(chromium, shown, shares))
    assert shares["schedule"] - shares["observe"] > LEAST_GAIN


def beside(chromium: Any, shown: dict[str, bytes], shares: dict[str, float]) -> bytes:
    """Returns one PNG of both pages, each under its share of requests on time."""
    figures = "".join(
        f"<figure><figcaption>{html.escape(SIDES[mode])}: {shares[mode]:.0%} on time</figcaption>"
        f"<img src='data:image/png;base64,{base64.b64encode(shown[mode]).decode()}'></figure>"
        for mode in SIDES
    )
    page = chromium.new_page(viewport={"width": 2 * WIDTH, "height": 100})
    page.set_content(
        "<style>body{margin:0;display:flex;background:#fff;font:bold 18px system-ui,sans-serif}"
        f"figure{{margin:0;width:{WIDTH}px}}figcaption{{padding:10px 14px}}img{{display:block;box-sizing:border-box}}"
        "figure+figure img{border-left:1px solid #d0d4da}</style>" + figures
    )
    picture: bytes = page.screenshot(full_page=True)
    page.close()
    return picture
