"""Reads Mooncake (kvcache-ai/Mooncake, Apache-2.0) and Qwen-Bailian (alibaba-edu, Apache-2.0) traces, JSONL with hash
ids of the prompts' blocks.

Mooncake: `timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids` of 512-token blocks. Qwen-Bailian:
the same with `timestamp` in seconds and blocks of 16 tokens, and `chat_id`, `parent_chat_id`, `turn`, `type`.
"""

from pathlib import Path

from hmas_loadgen.traces.lines import Record, hash_ids, json_records
from hmas_loadgen.traces.row import Trace, TraceRow, from_zero

MOONCAKE_BLOCK_TOKENS = 512
BAILIAN_BLOCK_TOKENS = 16


def _row(record: Record, unit_s: float) -> TraceRow:
    arrival_s = record.number("timestamp") * unit_s
    tokens_in, tokens_out = record.tokens("input_length"), record.tokens("output_length")
    return TraceRow(
        arrival_s=arrival_s, input_tokens=max(1, tokens_in), output_tokens=max(1, tokens_out), hash_ids=hash_ids(record)
    )


def read_mooncake(path: Path) -> Trace:
    """Reads Mooncake's conversation, tool&agent or synthetic trace. Raises TraceError for a malformed line."""
    rows = [_row(record, 0.001) for record in json_records(path)]
    return Trace(name=path.name, rows=from_zero(rows), block_tokens=MOONCAKE_BLOCK_TOKENS)


def read_bailian(path: Path) -> Trace:
    """Reads a Qwen-Bailian usage trace. Raises TraceError for a malformed line."""
    rows = [_row(record, 1.0) for record in json_records(path)]
    return Trace(name=path.name, rows=from_zero(rows), block_tokens=BAILIAN_BLOCK_TOKENS)
