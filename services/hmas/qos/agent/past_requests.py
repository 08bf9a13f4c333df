"""The ring of a pool's past requests: what was offered and how it ended, for rehearsals. It holds no text."""

from collections import OrderedDict, deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from hmas.contracts.past import OPEN_FROM, PastBlock
from hmas.contracts.request import Slo, TagSource, TaskType
from hmas.contracts.telemetry import FirstTokenSeen, RequestOffered, RequestQueued, RequestSettled
from hmas.laws.request_rows import MAX_BLOCK_ROWS, RequestRow, pack

_UNKNOWN_SLO = Slo(6.0, 0.1)  # until a gateway tells it


@dataclass(frozen=True, slots=True, kw_only=True)
class PastConfig:
    """How much is kept of each pool's past. A row takes about 110 bytes: an hour of 50 requests a
    second is 20 MB."""

    window_s: float = 3600.0
    block_s: float = 60.0  # a block holds the requests that ended in so many seconds, or fewer if they are many
    max_bytes: int = 24 * 2**20  # of a pool's packed blocks
    max_open: int = 20_000  # requests of a pool that have not ended; beyond, the oldest is forgotten
    max_early: int = 4096  # requests of which a worker told before their gateway did
    keep_every_s: float = 10.0  # the block that still grows is kept anew this often, so a crash loses no more


@dataclass(frozen=True, slots=True)
class _Block:
    number: int
    origin_s: float  # from which the rows' `arrival_s` count
    end_s: float  # the latest end of a row
    rows: bytes

    def sent(self, now_s: float) -> PastBlock:
        return PastBlock(
            number=self.number, age_s=now_s - self.origin_s, span_s=max(0.0, self.end_s - self.origin_s), rows=self.rows
        )


class PastRequests:
    """The requests of one pool over the last hour. Those that ended are packed block by block; those that have not are
    kept apart until they do. `topology` is the pool's at the moment."""

    def __init__(self, config: PastConfig) -> None:
        self._config = config
        self._blocks: deque[_Block] = deque()
        self._bytes = 0
        self._open: OrderedDict[str, RequestRow] = OrderedDict()  # `arrival_s` is an instant here
        self._early: OrderedDict[str, list[RequestQueued | FirstTokenSeen]] = OrderedDict()
        self._ended: list[RequestRow] = []
        self._since_s = 0.0
        self._kept = 0  # rows of the growing block when it was last kept
        self._keep_due_s = 0.0
        self._number = 0
        self.topology = ""

    @property
    def size(self) -> int:
        """Bytes of the packed blocks."""
        return self._bytes

    def offered(self, now_s: float, offer: RequestOffered) -> None:
        row = RequestRow(
            arrival_s=now_s - offer.age_s,
            tenant=offer.tenant,
            prompt_tokens=offer.prompt_tokens,
            slo=offer.slo or _UNKNOWN_SLO,
            model=offer.model,
            job=offer.job,
            weight=offer.weight,
            max_tokens=offer.max_tokens,
            stream=offer.stream,
            stated=offer.slo_stated,
            priority=offer.priority,
            importance=offer.importance,
            relegate=offer.relegate,
            topology=self.topology,
        )
        for told in self._early.pop(offer.request_id, ()):
            row = _with_report(row, told)
        self._open[offer.request_id] = row
        if len(self._open) > self._config.max_open:
            self._open.popitem(last=False)

    def hear(self, report: RequestQueued | FirstTokenSeen) -> None:
        """Takes what a worker tells of a request that has not ended: what perception said of it, or its first
        token."""
        row = self._open.get(report.request_id)
        if row is not None:
            self._open[report.request_id] = _with_report(row, report)
            return
        self._early.setdefault(report.request_id, []).append(report)
        if len(self._early) > self._config.max_early:
            self._early.popitem(last=False)

    def settled(self, now_s: float, end: RequestSettled) -> None:
        row = self._open.pop(end.request_id, None)
        if row is None:
            return
        if not self._ended:
            self._since_s = now_s
        predicted = end.predicted_output_tokens, end.predicted_output_tokens_p90
        if row.tagged_by is not None:  # its worker told what it made of perception's lengths by what it had learnt
            predicted = row.predicted_output_tokens, row.predicted_output_tokens_p90
        self._ended.append(
            replace(
                row,
                prompt_tokens=end.prompt_tokens,
                slo=end.slo,
                task=end.task,
                tagged_by=end.tagged_by,
                confidence=end.confidence,
                predicted_output_tokens=predicted[0],
                predicted_output_tokens_p90=predicted[1],
                outcome=end.outcome,
                output_tokens=end.output_tokens,
                ttft_s=end.ttft_s,
                tpot_s=end.tpot_s,
                last_token_s=end.last_token_s,
                withdrawn_s=end.withdrawn_s,
            )
        )

    def to_keep(self, now_s: float) -> PastBlock | None:
        """Returns the growing block if it is to be kept now, because it is full or has grown since it was last kept;
        None otherwise. Forgets what is too old or too much."""
        self._forget(now_s)
        if not self._ended:
            return None
        full = len(self._ended) >= MAX_BLOCK_ROWS or now_s - self._since_s >= self._config.block_s
        if not full and (now_s < self._keep_due_s or len(self._ended) == self._kept):
            return None
        block = _packed(self._number, self._ended)
        self._kept, self._keep_due_s = len(self._ended), now_s + self._config.keep_every_s
        if full:
            self._add(block)
            self._ended, self._kept = [], 0
            self._number += 1
        return block.sent(now_s)

    def since(self, now_s: float, last_s: float, first: int = 0) -> list[PastBlock]:
        """Returns the blocks from number `first` on with requests that ended in the last seconds, in order of their
        numbers: the growing one follows those that are full, and what has not ended comes last."""
        found = [block for block in self._blocks if block.end_s >= now_s - last_s]
        if self._ended:
            found.append(_packed(self._number, self._ended))
        still = list(self._open.values())
        parts = (still[i : i + MAX_BLOCK_ROWS] for i in range(0, len(still), MAX_BLOCK_ROWS))
        found += [_packed(OPEN_FROM + i, part) for i, part in enumerate(parts)]
        return [block.sent(now_s) for block in found if block.number >= first]

    def restore(self, now_s: float, blocks: Iterable[PastBlock]) -> None:
        """Goes on from the blocks that an earlier owner kept; what was heard meanwhile is younger than they are."""
        own, self._blocks, self._bytes = list(self._blocks), deque(), 0
        for block in sorted(blocks, key=lambda each: each.number):
            origin_s = now_s - block.age_s
            self._add(_Block(block.number, origin_s, origin_s + block.span_s, block.rows))
            self._number = max(self._number, block.number + 1)
        for young in own:
            self._add(replace(young, number=self._number))
            self._number += 1

    def _add(self, block: _Block) -> None:
        self._blocks.append(block)
        self._bytes += len(block.rows)

    def _forget(self, now_s: float) -> None:
        horizon_s = now_s - self._config.window_s
        while self._blocks and (self._blocks[0].end_s < horizon_s or self._bytes > self._config.max_bytes):
            self._bytes -= len(self._blocks.popleft().rows)
        while self._open and next(iter(self._open.values())).arrival_s < horizon_s:
            self._open.popitem(last=False)


def _with_report(row: RequestRow, report: RequestQueued | FirstTokenSeen) -> RequestRow:
    """Returns the row with what a worker reported of it. Only perception's own prior leaves the task unknown."""
    if isinstance(report, FirstTokenSeen):
        return replace(row, ttft_s=report.ttft_s, slo=replace(row.slo, ttft_s=report.ttft_slo_s))
    tagged = report.task is not TaskType.UNKNOWN
    return replace(
        row,
        task=report.task,
        tagged_by=TagSource.MODEL if tagged else None,
        confidence=1.0 if tagged else 0.0,
        predicted_output_tokens=report.predicted_output_tokens,
        predicted_output_tokens_p90=report.predicted_output_tokens_p90,
        slo=replace(row.slo, tpot_s=report.tpot_slo_s or row.slo.tpot_s),
    )


def _packed(number: int, rows: list[RequestRow]) -> _Block:
    origin_s = min(row.arrival_s for row in rows)
    end_s = max(row.arrival_s + (row.last_token_s or 0.0) for row in rows)
    return _Block(number, origin_s, end_s, pack(rows, origin_s))
