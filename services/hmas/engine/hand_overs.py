"""Shell: hand-overs of KV between emulated engines, as vLLM's NIXL connector makes them where the decoder pulls.

A request with `do_remote_decode` leaves its KV here, for `lease_s` at most, and its answer says in `kv_transfer_params`
where: another engine gets these as they are, with the same prompt, and reads. Reads from one engine come one after the
other, each in full, at `tokens_per_s`, as UCX over TCP was seen to do.
"""

import json
from asyncio import AbstractEventLoop, Task, open_connection, sleep, wait_for
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from typing import Any, Protocol
from uuid import uuid4

import orjson

KV_PATHS = "/hmas/kv/"
READ_PATH, DONE_PATH, FAULT_PATH = f"{KV_PATHS}read", f"{KV_PATHS}done", f"{KV_PATHS}fault"
ASK_S = 30.0  # within which the other engine must answer
MAX_ANSWER = 4096  # bytes of it
CONNECTOR = "NixlConnector"


@dataclass(frozen=True, slots=True, kw_only=True)
class KvTransferConfig:
    """What vLLM's `--kv-transfer-config` says of it. `recompute`: a prompt whose KV does not come is computed here;
    otherwise its request fails. Whatever its `kv_role`, an engine lends and reads, as vLLM's do."""

    recompute: bool = False
    lease_s: float = 30.0
    tokens_per_s: float = 200_000.0

    @staticmethod
    def parse(text: str) -> "KvTransferConfig":
        """Reads what vLLM's flag takes, and `tokens_per_s` in `kv_connector_extra_config` beside what NIXL reads there.
        Raises ValueError if it is unusable."""
        told = json.loads(text)
        if not isinstance(told, dict) or told.get("kv_connector") != CONNECTOR:
            raise ValueError(f'--kv-transfer-config takes {{"kv_connector": "{CONNECTOR}", "kv_role": "kv_both"}}')
        role, policy = told.get("kv_role", "kv_both"), told.get("kv_load_failure_policy", "fail")
        roles, policies = ("kv_producer", "kv_consumer", "kv_both"), ("fail", "recompute")
        if role not in roles or policy not in policies:
            raise ValueError(f"kv_role is one of {', '.join(roles)}, kv_load_failure_policy of {', '.join(policies)}")
        extra = told.get("kv_connector_extra_config") or {}
        lease_s, rate = float(extra.get("kv_lease_duration", 30.0)), float(extra.get("tokens_per_s", 200_000.0))
        if min(lease_s, rate) <= 0.0:
            raise ValueError("kv_lease_duration and tokens_per_s must be above 0")
        return KvTransferConfig(recompute=policy == "recompute", lease_s=lease_s, tokens_per_s=rate)


@dataclass(frozen=True, slots=True)
class RemoteKv:
    """Where the KV of a prompt is, as the answer of the engine that has it says."""

    host: str
    port: int
    request_id: str


class BadTransfer(ValueError):
    """The `kv_transfer_params` of a request are unusable; the text says why."""


def is_lender(params: object) -> bool:
    """Returns whether a request with these `kv_transfer_params` is to leave its KV for another engine."""
    return isinstance(params, dict) and bool(params.get("do_remote_decode"))


def remote_kv_of(params: object) -> RemoteKv | None:
    """Returns what a request with these `kv_transfer_params` is to read; None: nothing. Raises BadTransfer."""
    if not isinstance(params, dict) or not params.get("do_remote_prefill"):
        return None
    host, port, name = (params.get(f"remote_{part}") for part in ("host", "port", "request_id"))
    if not isinstance(host, str) or not isinstance(port, int) or not isinstance(name, str) or not host or not name:
        raise BadTransfer(
            "kv_transfer_params: remote_host, remote_port and remote_request_id must be those of an answer"
        )
    return RemoteKv(host, port, name)


class LenderFault(StrEnum):
    """What an engine that lends may be told to do wrong."""

    NONE = ""
    HANG = "hang"  # it does not answer those that read
    FAIL = "fail"  # it answers them that it cannot
    EXPIRE = "expire"  # it gives all back now, as if the leases were over


class LendingCore(Protocol):
    """The step loop as hand-overs see it."""

    def landed(self, request_id: str) -> None: ...

    def give_back(self, request_id: str) -> bool: ...


class HandOvers:
    """The hand-overs of one engine, which others reach at `address`, host and port. `expired` is called for each lease
    that ended before anybody had read."""

    def __init__(
        self,
        config: KvTransferConfig,
        address: tuple[str, int],
        block_size: int,
        loop: AbstractEventLoop,
        core: LendingCore,
        expired: Callable[[], None],
    ) -> None:
        self.config = config
        self._address, self._block_size = address, block_size
        self._loop, self._core, self._expired = loop, core, expired
        self._id = str(uuid4())
        self._blocks = count(1)
        self._lent: dict[str, int] = {}  # tokens
        self._fault = LenderFault.NONE
        self._free_s: dict[tuple[str, int], float] = {}  # when the last read from an engine is over
        self._reads: dict[str, Task[None]] = {}

    # --- what is lent

    def lend(self, request_id: str, tokens: int, cached: int) -> dict[str, Any]:
        """Begins the lease of what a request left, and returns what its answer says of it."""
        self._lent[request_id] = tokens
        self._loop.call_later(self.config.lease_s, self._end_lease, request_id)
        blocks = [next(self._blocks) for _ in range(-(-tokens // self._block_size))]
        return {
            "do_remote_prefill": True, "do_remote_decode": False, "remote_block_ids": [blocks],
            "remote_engine_id": self._id, "remote_request_id": request_id, "remote_host": self._address[0],
            "remote_port": self._address[1], "tp_size": 1, "dcp_size": 1, "pp_size": 1, "remote_num_tokens": tokens,
            "remote_blocks_expiry_time": None, "transfer_mode": "pull", "remote_prefill_cached_tokens": cached,
        }  # fmt: skip

    def _end_lease(self, request_id: str) -> None:
        if self._lent.pop(request_id, None) is not None:
            self._expired()
            self._core.give_back(request_id)

    async def serve(self, path: str, raw: bytes) -> tuple[int, bytes]:
        """Answers an engine that reads or has read, or a test that wants a fault."""
        told = orjson.loads(raw or b"{}")
        if path == FAULT_PATH:
            self._fault = LenderFault(told.get("kind", ""))
            if self._fault is LenderFault.EXPIRE:
                for each in list(self._lent):
                    self._end_lease(each)
            return 200, b"{}"
        if self._fault is LenderFault.HANG:
            await sleep(2.0 * ASK_S)
        name = told.get("request_id", "")
        if self._fault is LenderFault.FAIL or name not in self._lent:
            return 404, orjson.dumps({"error": f"there is no KV of the request {name}"})
        if path == DONE_PATH:
            del self._lent[name]
            self._core.give_back(name)
            return 200, b"{}"
        return 200, orjson.dumps({"tokens": self._lent[name]})

    # --- what is read

    def read(self, request_id: str, remote: RemoteKv, tokens: int, failed: Callable[[str, str], None]) -> None:
        """Reads `tokens` tokens for a request whose memory is taken. `failed` is called with its id and why, if they do
        not come."""
        task = self._loop.create_task(self._read(request_id, remote, tokens, failed))
        self._reads[request_id] = task
        task.add_done_callback(lambda _: self._reads.pop(request_id, None))

    def stop(self, request_id: str) -> None:
        """Gives up a read whose request has gone."""
        task = self._reads.get(request_id)
        if task is not None:
            task.cancel()

    async def _read(self, request_id: str, remote: RemoteKv, tokens: int, failed: Callable[[str, str], None]) -> None:
        try:
            status, answer = await _ask(remote, READ_PATH)
            if status == 200:
                pair, now_s = (remote.host, remote.port), self._loop.time()
                ends_s = max(now_s, self._free_s.get(pair, 0.0)) + tokens / self.config.tokens_per_s
                self._free_s[pair] = ends_s
                await sleep(ends_s - now_s)
                status, answer = await _ask(remote, DONE_PATH)
        except (OSError, TimeoutError, ValueError) as error:
            failed(request_id, f"its KV could not be read: {error or type(error).__name__}")
            return
        if status == 200:
            self._core.landed(request_id)
        else:
            failed(request_id, f"its KV could not be read: {answer.decode(errors='replace')}")


async def _ask(remote: RemoteKv, path: str) -> tuple[int, bytes]:
    """Posts a request's id to another engine; returns status and body of the answer."""
    body = orjson.dumps({"request_id": remote.request_id})

    async def asked() -> bytes:
        reader, writer = await open_connection(remote.host, remote.port)
        try:
            writer.write(b"POST %b HTTP/1.0\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body))
            found = b""
            while len(found) < MAX_ANSWER and (more := await reader.read(MAX_ANSWER)):
                found += more
            return found
        finally:
            writer.close()

    head, _, rest = (await wait_for(asked(), ASK_S)).partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError("the other engine did not answer in HTTP")
    return int(words[1]), rest
