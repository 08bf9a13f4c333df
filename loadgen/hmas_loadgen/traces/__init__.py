"""Reads request traces, with one reader per published format and one row type for all formats.

Invariants:
- Rows are in order of arrival; the first of a recorded trace arrives at 0 s.
  [tests/loadgen/traces/test_trace_formats.py::test_rows_out_of_order_are_sorted_and_start_at_zero]
- A malformed line raises `TraceError`, which names the file, the line and what to do; no line is skipped silently.
  [tests/loadgen/traces/test_trace_formats.py::test_a_malformed_line_names_file_line_and_reason]
- Lengths are at least 1 token, because an engine generates at least one.
  [tests/loadgen/traces/test_trace_formats.py::test_a_zero_length_counts_as_one_token]
"""
