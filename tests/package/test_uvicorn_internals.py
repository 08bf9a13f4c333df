"""What `hmas.runtime.connections` uses of uvicorn beyond its interface: a new minor version must pass."""

import asyncio
import inspect
import re
import tomllib
from importlib.metadata import version

import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from tests.package.conftest import ROOT

HOOKS = {
    "connection_made": ["transport"],
    "connection_lost": ["exc"],
    "data_received": ["data"],
    "eof_received": [],
    "on_message_begin": [],
    "on_headers_complete": [],
    "on_body": ["body"],
    "on_message_complete": [],
    "_unset_keepalive_if_required": [],
    "send_400_response": ["msg"],
    "timeout_keep_alive_handler": [],
}
ATTRIBUTES = ("transport", "connections", "cycle", "scope", "flow", "loop", "parser", "headers", "url", "pipeline")
CYCLE_ATTRIBUTES = (
    "scope", "transport", "more_body", "response_started", "response_complete", "chunked_encoding", "disconnected",
    "message_event",
)  # fmt: skip


def test_the_bound_ends_before_the_next_minor_version() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (bound,) = (d for d in declared if d.startswith("uvicorn"))
    match = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", bound)
    assert match is not None
    assert int(match[2]) == int(match[1]) + 1 == int(version("uvicorn").split(".")[1]) + 1


def test_the_methods_that_are_overridden_have_their_arguments() -> None:
    for name, arguments in HOOKS.items():
        assert list(inspect.signature(getattr(HttpToolsProtocol, name)).parameters)[1:] == arguments, name


class _Memory(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...


async def test_a_connection_has_the_attributes_that_are_read_and_set() -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    protocol = HttpToolsProtocol(config, ServerState(), {}, asyncio.get_running_loop())
    transport = _Memory()
    protocol.connection_made(transport)
    protocol.data_received(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 2\r\n\r\n")
    assert not [a for a in ATTRIBUTES if not hasattr(protocol, a)]
    assert isinstance(protocol.connections, set)
    assert isinstance(protocol.flow, FlowControl)
    assert protocol.flow.write_paused is False
    assert isinstance(protocol.cycle, RequestResponseCycle)
    assert not [a for a in CYCLE_ATTRIBUTES if not hasattr(protocol.cycle, a)]
    assert protocol.cycle.scope is protocol.scope
    assert protocol.cycle.transport is transport
    assert protocol.cycle.more_body
    await asyncio.sleep(0)
