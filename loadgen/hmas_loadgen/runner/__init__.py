"""Runs a load plan open loop: sends requests on schedule over HTTP, reads the answers' streams with little work per
token, and records every request.

Invariants
- Every scheduled request gets one record, even if it is refused, cut off, timed out or its sender process dies.
- Nothing is retried. A request is sent once, at its instant or, if the generator is late, as soon as possible.
- Work per token event is constant: no JSON is parsed between the first token and the end of the stream.
"""
