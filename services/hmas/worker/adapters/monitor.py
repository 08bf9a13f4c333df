"""Learns over an engine's HTTP interface whether it can serve (probe), what it is (discovery) and its load (scrape)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import orjson
import structlog

from hmas.contracts.registry import API_PATHS, SGLANG, USUAL_PATHS, EngineInfo
from hmas.laws.figures import sane_int
from hmas.runtime.http1 import HttpPool
from hmas.worker.adapters import scrape
from hmas.worker.adapters.engine_facts import EngineFacts, Handing, handing_of

log = structlog.get_logger()

Head = Callable[[str, int | None], bytes]

MAX_VERSION_CHARS = 64
MAX_MODEL_CHARS = 256  # of a model's name
MAX_ADAPTERS, MAX_ADAPTER_CHARS = 512, 256  # of an engine, that are told of
MAX_TOLD_CHARS = 1024  # of the models of an engine that serves none of the pool's
CHECK_MODEL = ("vllm", "emulated")  # dialects that refuse requests for a model that they do not list
OFF_THE_LOOP = 64 * 2**10  # bytes of a page above which it is read in a thread


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorConfig:
    """Limits of the requests to an engine, and what is assumed of an engine that neither itself nor the operator
    describes."""

    timeout_s: float = 3.0  # of each request
    max_page_bytes: int = 2**20  # of an answer; what is longer is cut
    max_num_seqs: int = 256  # assumed
    max_model_len: int = 131_072  # assumed
    tokens_per_sequence: int = 2_048  # KV cache assumed per sequence, if its size is unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class SglangFacts:
    """What SGLang's `/server_info` says.

    `max_running`: its own limit on running requests, which a limit set later may not exceed. `higher_first`: whether
    higher priority numbers come first; None: it does not schedule by priority.
    """

    max_running: int
    pipeline_stages: int = 1
    higher_first: bool | None = None

    @staticmethod
    def of(server: dict[str, Any], max_running: int) -> "SglangFacts":
        low_first = bool(server.get("schedule_low_priority_values_first"))
        higher_first = None if not server.get("enable_priority_scheduling") else not low_first
        return SglangFacts(
            max_running=max_running, pipeline_stages=_positive(server.get("pp_size")) or 1, higher_first=higher_first
        )


class Unreachable(Exception):
    """Raised when an engine gives no usable answer.

    `certain`: the connection or the answer failed, so that asking again is of no use now; false: it was only late.
    """

    def __init__(self, reason: str, *, certain: bool) -> None:
        super().__init__(reason)
        self.certain = certain


class _Page:
    """Collects an HTTP answer; `answer` becomes (status, body). It is over at `max_bytes`, whatever would follow."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._bodies: list[bytes] = []
        self._size = 0
        self.whole = False

    def on_head(self, status: int) -> None:
        self._status = status

    def on_body(self, data: bytes) -> None:
        if self.answer.done():
            return
        self._bodies.append(data[: self._max_bytes - self._size])
        self._size += len(data)
        if self._size > self._max_bytes:
            self.on_complete()

    def on_complete(self) -> None:
        self.whole = self._size <= self._max_bytes
        if not self.answer.done():
            self.answer.set_result((self._status, b"".join(self._bodies)))

    def on_failure(self, reason: str) -> None:
        if not self.answer.done():
            self.answer.set_exception(Unreachable(reason, certain=True))


class EngineMonitor:
    """Asks one engine for its health, facts and metrics. `head(path, length)` builds a request's head: of a POST to an
    admin path if there is a length, otherwise of a GET."""

    def __init__(self, pool: HttpPool, head: Head, facts: EngineFacts, config: MonitorConfig) -> None:
        self._pool, self._head, self._facts, self._config = pool, head, facts, config
        self._dialect: scrape.Dialect | None = None
        self._foreign: tuple[str, ...] = ()  # the models of an engine that does not serve the pool's, as last logged
        self.sglang: SglangFacts | None = None  # after `discover`, if it is one

    async def get(self, path: str) -> tuple[int, bytes]:
        """Returns the status and body of the answer to a GET request. Raises Unreachable if none comes."""
        return await self._ask(path, self._head(path, None), b"")

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Returns the status and body of the answer to a POST request to an admin path. Raises Unreachable if none
        comes."""
        return await self._ask(path, self._head(path, len(body)), body)

    async def _ask(self, path: str, head: bytes, body: bytes) -> tuple[int, bytes]:
        page = _Page(self._config.max_page_bytes)
        exchange = self._pool.send(head, body, page)
        try:
            async with asyncio.timeout(self._config.timeout_s):  # wait_for may swallow a cancellation
                return await page.answer
        except TimeoutError:
            timeout_s = self._config.timeout_s
            raise Unreachable(f"the engine did not answer {path} within {timeout_s:g} s", certain=False) from None
        finally:
            if not page.whole:
                exchange.abort()  # the rest of the answer is of no use

    async def probe(self) -> None:
        """Checks that the engine can serve. Raises Unreachable if it does not answer, or answers with an error."""
        status, _ = await self.get("/health")
        if status in (404, 405, 501):  # a server without /health still lists its models
            status, _ = await self.get("/v1/models")
        if status >= 400:
            raise Unreachable(f"the engine answered its health check with HTTP {status}", certain=True)

    async def discover(self) -> EngineInfo:
        """Returns what the engine is, from its own pages and the operator's facts, which take precedence.

        What neither tells is assumed (`MonitorConfig`). Raises Unreachable if the engine does not answer, or would
        refuse the pool's model.
        """
        metrics, cards, server = await self._metrics(), await self._model_cards(), {}
        card = cards[0] if cards else {}
        self._dialect = scrape.dialect_of(metrics)
        dialect = self._dialect.name if self._dialect else "openai"
        if dialect == "sglang":
            server = await self._json("/server_info") or await self._json("/get_server_info")  # its older name
        if scrape.total(metrics, scrape.EMULATED) is not None:
            dialect = "emulated"
        if dialect in CHECK_MODEL:
            self._check_model(cards)
        cache = scrape.labels_of(metrics, scrape.CACHE_CONFIG)
        block_size = _positive(cache.get("block_size")) or _positive(server.get("page_size")) or 1
        blocks = _positive(cache.get("num_gpu_blocks"))
        reported = _positive(blocks * block_size) if blocks else _positive(server.get("max_total_num_tokens"))
        facts, config, handing = self._facts, self._config, await self._handing(server)
        own = _max_running(server)
        max_num_seqs = facts.max_num_seqs or own or config.max_num_seqs
        max_num_seqs = min(max_num_seqs, own or max_num_seqs)
        self.sglang = SglangFacts.of(server, own or max_num_seqs) if dialect == "sglang" else None
        max_model_len = facts.max_model_len or _positive(card.get("max_model_len")) or config.max_model_len
        capacity = facts.kv_capacity_tokens or reported
        if not capacity:
            capacity = max(max_model_len, max_num_seqs * config.tokens_per_sequence)
            log.warning("engine_kv_capacity_assumed", engine=facts.name, tokens=capacity, hint="set kv_capacity_tokens")
        return EngineInfo(
            engine=facts.name,
            up=True,
            dialect=dialect if facts.dialect == "auto" else facts.dialect,
            hardware=facts.hardware,
            max_model_len=max_model_len,
            kv_capacity_tokens=capacity,
            block_size=block_size,
            max_num_seqs=max_num_seqs,
            endpoint=facts.endpoint,
            model=facts.model or _true_name(card, server),
            paths=USUAL_PATHS if handing.kv == SGLANG else await self._paths(),  # those that take what pairs add
            adapters=_adapters(cards),
            epoch=facts.epoch,
            kv=handing.kv,
            role=handing.role,
            bootstrap_port=handing.bootstrap_port,
            kv_version=handing.version,
        )

    async def _handing(self, server: dict[str, Any]) -> Handing:
        """Returns how the engine hands KV over, with vLLM's version if it is one that does."""
        handing = handing_of(self._facts, server)
        if not handing.kv or handing.kv == SGLANG:
            return handing
        version = (await self._json("/version")).get("version")
        return replace(handing, version=version[:MAX_VERSION_CHARS]) if isinstance(version, str) else handing

    def _check_model(self, cards: list[dict[str, Any]]) -> None:
        """Raises Unreachable if the engine lists models of which none is the pool's. It refuses what asks for another
        model, so quickly that it would look the least loaded and get every request."""
        listed = tuple(name for card in cards if isinstance(name := card.get("id"), str))
        if not listed or not self._facts.pool or self._facts.pool in listed:
            self._foreign = ()
            return
        if listed != self._foreign:
            self._foreign = listed
            log.warning(
                "engine_serves_another_model",
                engine=self._facts.name,
                serves=", ".join(listed)[:MAX_TOLD_CHARS],
                effect=f"it gets no request for {self._facts.pool}",
                hint="the name of the pool and the engine's --served-model-name must be the same",
            )
        raise Unreachable(f"the engine does not serve the model {self._facts.pool}", certain=True)

    async def reading(self) -> scrape.Reading | None:
        """Scrapes the engine's load from its metrics page. Returns None if it has no known metrics. Raises Unreachable
        if it does not answer."""
        if self._dialect is None:
            return None
        return scrape.read(await self._metrics(), self._dialect)

    async def _metrics(self) -> scrape.Metrics:
        status, page = await self.get("/metrics")
        if status != 200:
            page = b""
        if len(page) >= self._config.max_page_bytes:
            page = page[: page.rfind(b"\n") + 1]  # the last line may have lost digits
        return await asyncio.to_thread(scrape.read_page, page) if len(page) > OFF_THE_LOOP else scrape.read_page(page)

    async def _paths(self) -> tuple[str, ...]:
        """Returns the paths of the API that the engine serves. It is asked by GET requests, which a server answers with
        405 where it takes a POST. One that never does so is expected to serve the usual paths."""
        served = []
        for path in API_PATHS:
            try:
                status, _ = await self.get(path)
            except Unreachable:
                return USUAL_PATHS
            if status == 405:
                served.append(path)
        return tuple(served) or USUAL_PATHS

    async def _model_cards(self) -> list[dict[str, Any]]:
        models = (await self._json("/v1/models")).get("data")
        return [card for card in models if isinstance(card, dict)] if isinstance(models, list) else []

    async def _json(self, path: str) -> dict[str, Any]:
        status, body = await self.get(path)
        try:
            document = orjson.loads(body) if status == 200 else {}
        except orjson.JSONDecodeError:
            document = {}
        return document if isinstance(document, dict) else {}


def _true_name(card: dict[str, Any], server: dict[str, Any]) -> str:
    """Returns the name of the model behind the name that clients use: vLLM's `root`, SGLang's `model_path`. A path in
    the engine's file system tells less than the pool's name: it, or what cannot be a name, gives an empty one."""
    name = server.get("model_path") or card.get("root")
    if not isinstance(name, str) or len(name) > MAX_MODEL_CHARS or name.startswith(("/", ".")):
        return ""
    return name


def _adapters(cards: list[dict[str, Any]]) -> tuple[str, ...]:
    """Returns the names of the LoRA adapters among the models that an engine lists: they name a parent."""
    names = (card.get("id") for card in cards if isinstance(card.get("parent"), str) and card["parent"])
    usable = (name for name in names if isinstance(name, str) and 0 < len(name) <= MAX_ADAPTER_CHARS)
    return tuple(dict.fromkeys(usable))[:MAX_ADAPTERS]


def _max_running(server: dict[str, Any]) -> int | None:
    """Returns SGLang's limit on running requests: the one in effect if it reports it, otherwise the configured one."""
    states = server.get("internal_states")
    state = states[0] if isinstance(states, list) and states and isinstance(states[0], dict) else {}
    settled = _positive(state.get("effective_max_running_requests_per_dp"))
    return settled or _positive(server.get("max_running_requests"))


def _positive(value: Any) -> int | None:
    """Returns a figure of the engine's as a whole number above 0; None if it is none, or not to be believed."""
    return sane_int(value) or None
