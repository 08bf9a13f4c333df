"""A TCP proxy in front of an engine that keeps what its clients sent: what the engine really received."""

import json
import socket
import threading
from typing import Any
from urllib.parse import urlparse


class RecordingProxy:
    """Passes bytes both ways between whoever connects to `url` and the engine at `target`."""

    def __init__(self, target: str) -> None:
        parts = urlparse(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self._sent: list[bytearray] = []  # one a connection
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def bodies(self, path: str) -> list[dict[str, Any]]:
        """The JSON bodies that were sent to `path`, connection by connection."""
        found = []
        for sent in self._sent:
            rest = bytes(sent)
            while b"\r\n\r\n" in rest:
                head, rest = rest.split(b"\r\n\r\n", 1)
                lines = head.decode().split("\r\n")
                headers = {k.lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
                length = int(headers.get("content-length", 0))
                if lines[0].startswith(f"POST {path} "):
                    found.append(json.loads(rest[:length]))
                rest = rest[length:]
        return found

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            engine = socket.create_connection(self._target)
            sent = bytearray()
            self._sent.append(sent)
            threading.Thread(target=_pass, args=(client, engine, sent), daemon=True).start()
            threading.Thread(target=_pass, args=(engine, client, None), daemon=True).start()


def _pass(source: socket.socket, sink: socket.socket, kept: bytearray | None) -> None:
    try:
        while data := source.recv(65536):
            if kept is not None:
                kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        source.close()
        sink.close()
