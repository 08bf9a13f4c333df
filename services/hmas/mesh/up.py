"""The command `hmas up`: runs the embedded mesh in the foreground."""

import asyncio
import json
import signal
import socket
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from hmas.mesh.options import MeshOptions
from hmas.mesh.paired_engines import one_model, split_rule
from hmas.mesh.processes import wanted_ports
from hmas.mesh.scrape_file import scrape_file
from hmas.mesh.screen import Screen
from hmas.mesh.state import sole_owner
from hmas.mesh.supervisor import Mesh
from hmas.runtime.harmless_text import harmless
from hmas.runtime.open_files import raise_open_files

ANSWER_S = 5.0  # for which an engine may take to list its models
MAX_ANSWER_BYTES = 4 * 2**20
MAX_MODEL_CHARS = 256
ASK_EVERY_S = 1.0


def _picture(mesh: Mesh, *, shown_to_user: bool) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    state = mesh.plan.state({})
    served = dict.fromkeys([state.pool, *mesh.options.models.values()])
    table.add_row("API", f"{state.gateway_url}/v1", f"model{'s' if len(served) > 1 else ''} {', '.join(served)}")
    if state.console_url:
        # The part after # opens the page without asking; it is shown to a terminal alone, because logs are kept.
        token = f"/#token={Path(mesh.plan.console_token_file).read_text()}" if shown_to_user else ""
        table.add_row(
            "console", f"{state.console_url}{token}", "" if token else f"token: {mesh.plan.console_token_file}"
        )
        table.add_row("", mesh.plan.console_admin_token_file, "what pinning there asks for")
    for url in state.engine_urls:
        named = len(served) > 1 and url not in mesh.options.unnamed
        words = (mesh.options.pool_of(url) if named else "", mesh.plan.roles.get(url, ""))
        table.add_row("engine", url, " ".join(filter(None, words)))
    if mesh.plan.roles:
        never = "so that no request has two engines" if split_rule(mesh.options) == "never" else ""
        table.add_row("two engines", f"HMAS_SPLIT={split_rule(mesh.options)}", never)
    table.add_row("NATS", state.nats_url)
    for name, url in sorted(state.ops_urls.items()):
        table.add_row("metrics", f"{url}/metrics", name)
    table.add_row("", state.ops_token_file, "what /metrics ask for: Authorization: Bearer")
    table.add_row("", str(scrape_file(mesh.options.data_dir.resolve())), "all of them for Prometheus: file_sd_configs")
    table.add_row("logs", str(mesh.options.data_dir / "logs"))
    return table


class NotUp(ValueError):
    """An engine does not answer, or cannot serve yet; it may later."""


def card_of(engine_url: str, api_key: str) -> dict[str, Any]:
    """Returns what an engine says of the first model that it lists, its `id` at least. Raises ValueError if it lists
    none: NotUp if it may do so later."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    kind: type[ValueError] = ValueError
    try:
        status, body = _asked(f"{engine_url.rstrip('/')}/v1/models", headers)
        if status == 200:
            card = json.loads(body)["data"][0]
            return {**card, "id": _named(str(card["id"]))}
        reason, kind = f"status {status}", NotUp if status >= 500 else ValueError
    except OSError as error:
        reason, kind = str(error), NotUp
    except (HTTPException, ValueError, LookupError, TypeError, RecursionError) as error:
        reason = str(error)
    raise kind(f"the engine {engine_url} does not list its model ({reason})")


def _asked(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """Returns the status and body of an answer that is whole within `ANSWER_S`: an engine may send a byte a second, or
    without end. Raises OSError, HTTPException, or ValueError if the answer is too long."""
    parts, late = urlsplit(url), threading.Event()
    connection = (HTTPSConnection if parts.scheme == "https" else HTTPConnection)(parts.netloc, timeout=ANSWER_S)
    connection.connect()
    way = connection.sock

    def cut() -> None:
        late.set()
        with suppress(OSError):  # it has just ended
            way.shutdown(socket.SHUT_RDWR)

    watch = threading.Timer(ANSWER_S, cut)
    watch.start()
    try:
        connection.request("GET", parts.path, headers=headers)
        reply = connection.getresponse()
        status, body = reply.status, reply.read(MAX_ANSWER_BYTES + 1)
    except (OSError, HTTPException):
        if not late.is_set():
            raise
    finally:
        watch.cancel()
        connection.close()
    if late.is_set():
        raise TimeoutError(f"its answer took longer than {ANSWER_S:g} s")
    if len(body) > MAX_ANSWER_BYTES:
        raise ValueError(f"its answer is longer than {MAX_ANSWER_BYTES} bytes")
    return status, body


def _named(model: str) -> str:
    """Returns the name of a model if it can be one. Raises ValueError otherwise."""
    if not 0 < len(model) <= MAX_MODEL_CHARS or harmless(model) != model:
        raise ValueError(
            f"a name has 1 to {MAX_MODEL_CHARS} characters, without line ends and other control characters"
        )
    return model


def with_model(options: MeshOptions, say: Callable[[str], None] = lambda line: None) -> MeshOptions:
    """Returns the options with the engines' models: if none is named, each given engine is asked for its own. The
    others are `unnamed`, and `say` is told so. Raises ValueError, which says what to do, if none answers: NotUp if one
    may do so later."""
    urls, key = options.engine_urls, options.engine_api_key
    if options.model or not urls:
        return options
    if options.sources:
        raise ValueError("name the model of the engines with --model: those of a source need not be there yet")

    def ask(url: str) -> str | ValueError:
        try:
            return str(card_of(url, key)["id"])
        except ValueError as fault:
            return fault

    with ThreadPoolExecutor(min(len(urls), 32)) as pool:
        answers = dict(zip(urls, pool.map(ask, urls), strict=True))
    models = {url: answer for url, answer in answers.items() if isinstance(answer, str)}
    faults = [answer for answer in answers.values() if isinstance(answer, ValueError)]
    if not (models.keys() & options.roles.keys() if options.roles else models):
        fault = next((fault for fault in faults if isinstance(fault, NotUp)), faults[0])
        raise type(fault)(f"{fault}: start it, or name its model with --model")
    model = next(iter(models.values()))
    for fault in faults:
        say(f"{fault}: it is used once it does")
    models |= one_model(options.roles, models)
    others = {url: name for url, name in models.items() if name != model}
    return replace(options, model=model, models=others, unnamed=frozenset(urls) - models.keys())


async def with_model_once_up(options: MeshOptions, say: Callable[[str], None]) -> MeshOptions:
    """Returns the options with the engines' models as soon as one of them answers. Raises ValueError if none will."""
    last_fault = ""
    while True:
        try:
            return await asyncio.to_thread(with_model, options, say)
        except NotUp as fault:
            if str(fault) != last_fault:
                last_fault = str(fault)
                say(f"waiting: {last_fault}")
        await asyncio.sleep(ASK_EVERY_S)


async def name_late(mesh: Mesh) -> None:
    """Asks the engines that had named no model again until they do. The mesh took them for engines of its first one."""
    while mesh.options.unnamed:
        await asyncio.sleep(ASK_EVERY_S)
        for url in sorted(mesh.options.unnamed):
            try:
                card = await asyncio.to_thread(card_of, url, mesh.options.engine_api_key)
            except ValueError:
                continue
            await mesh.serve_model(url, card["id"])


async def serve(options: MeshOptions, console: Console) -> int:
    """Runs a mesh until SIGINT or SIGTERM and returns the exit code: 0, or 130 if interrupted while starting.

    Raises MeshFailed, NatsBinaryMissing, PortRefused or another ValueError.
    """
    raise_open_files()  # what it starts has its limit
    with sole_owner(options.data_dir):
        wanted_ports(options)  # at once, because the mesh itself may have to wait for its engines
        return await _serve(options, console)


async def _serve(options: MeshOptions, console: Console) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)

    screen = Screen(console.file.fileno())

    def show(shown: RenderableType) -> None:
        # `console` itself must not be used: even what it captures ends with a write of no bytes, which blocks as well.
        text = StringIO()
        onto = Console(file=text, force_terminal=console.is_terminal, width=console.width)
        onto.print(shown, soft_wrap=isinstance(shown, Text))
        screen.say(text.getvalue())

    def alarm(name: str, line: str) -> None:
        show(Text.assemble((f"{name:<14}", "dim"), harmless(line.strip())))

    try:
        stopped = asyncio.ensure_future(stop.wait())
        named = asyncio.ensure_future(with_model_once_up(options, lambda line: show(Text(harmless(line)))))
        if not await _first(named, stopped):
            return 130
        show(Text("starting the mesh ...", "dim"))
        mesh = Mesh(named.result(), alarm)
        if not await _first(mesh.__aenter__(), stopped):
            return 130
        show(_picture(mesh, shown_to_user=console.is_terminal))
        show(Text("watch it with `hmas top`; Ctrl-C stops it", "dim"))
        try:
            await _first(asyncio.gather(mesh.failed(), name_late(mesh)), stopped)
        finally:
            show(Text("stopping ...", "dim"))
            await mesh.stop()
        return 0
    finally:
        screen.close()


async def _first(work: Awaitable[Any], stopped: asyncio.Future[Any]) -> bool:
    """Runs `work` until it ends or `stopped` is done. Returns whether it ended by itself; raises what it raised."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not task.done():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return False
    task.result()
    return True
