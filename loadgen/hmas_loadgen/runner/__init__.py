"""Runs a load plan open loop: sends requests on schedule over HTTP, reads the answers' streams with little work per
token, and records every request. No JSON is parsed between the first token and the end of a stream.

Invariants:
- Every scheduled request gets one record, even if it is refused, cut off or timed out.
  [tests/loadgen/runner/test_open_loop_run.py::test_every_request_is_sent_once_on_schedule_and_scored]
  [tests/loadgen/runner/test_open_loop_run.py::test_what_is_unfinished_after_the_drain_time_is_cut_off]
- Nothing is retried. [tests/loadgen/runner/test_open_loop_run.py::test_nothing_is_retried]
"""
