"""What clients offer in virtual time: the requests of an annotated trace."""

from dataclasses import replace

from hmas.contracts.request import Request, TaskType
from hmas.engine.core.sequence import expand_prefix_hashes
from hmas.laws.slo import DEFAULT_IMPORTANCE, default_slo
from hmas.sim.workload import OfferedRequest, Workload
from hmas_loadgen.plan import Api
from hmas_loadgen.prompts import PromptBuilder
from hmas_loadgen.traces.row import Trace, TraceRow

MODEL = "model"
MAX_TOKENS_STEP = 1024
PREFIX_BLOCK_TOKENS = 16


def offered(trace: Trace, name: str, duration_s: float, seed: int, *, stated: bool, prompts: bool) -> Workload:
    """Returns the requests of an annotated trace as a workload of `duration_s` seconds.

    If `stated`, clients state the SLO of each request, and else its importance alone, so that the task type that
    perception finds gives the SLO. With `prompts`, each request has its text.
    """
    longest = max((row.output_tokens for row in trace.rows), default=1)
    max_tokens = -(-longest // MAX_TOKENS_STEP) * MAX_TOKENS_STEP
    builder = PromptBuilder(seed, Api.COMPLETIONS, trace.block_tokens) if prompts else None
    requests = tuple(
        _offered(row, i, trace.block_tokens, max_tokens, stated, _text(builder, i, row) if builder else "")
        for i, row in enumerate(trace.rows)
    )
    return Workload(name, requests, duration_s, trace.note)


def _offered(
    row: TraceRow, index: int, block_tokens: int, max_tokens: int, stated: bool, prompt: str
) -> OfferedRequest:
    task = row.task or TaskType.UNKNOWN
    importance = row.importance if row.importance is not None else DEFAULT_IMPORTANCE
    slo = row.slo or default_slo(task, importance)
    request = Request(
        id=f"r{index:06d}",
        model=MODEL,
        tenant=row.tenant or "default",
        flow="",
        prompt_tokens=row.input_tokens,
        max_tokens=max_tokens,
        stream=True,
        slo=slo if stated else default_slo(TaskType.UNKNOWN, importance),
        slo_stated=stated,
        priority=0,
        weight=1.0,
        importance=importance,
        arrival_s=row.arrival_s,
    )
    hashes: tuple[int, ...] = ()
    if row.hash_ids:
        whole = row.hash_ids[: row.input_tokens // block_tokens]
        hashes = expand_prefix_hashes(whole, block_tokens, PREFIX_BLOCK_TOKENS)
    return OfferedRequest(
        request=request, output_tokens=row.output_tokens, slo=slo, task=task, prompt=prompt, prefix_hashes=hashes
    )


def _text(builder: PromptBuilder, index: int, row: TraceRow) -> str:
    """Returns the text of a row. Its hash ids say what its prefix shares with others, which the engine is told apart
    from the text; the words that stand for them elsewhere would be nothing to read."""
    return builder.text(index, replace(row, hash_ids=()))
