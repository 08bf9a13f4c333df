"""The open loop: sends on schedule over HTTP, reads streams with little work per token, records everything.

Invariants
- One record per scheduled request, also when it is refused, cut off, timed out or its sender process dies.
- Nothing is retried. A request is sent once, at its instant or, where the generator is late, as soon as it can.
- Work per token event is constant: no JSON is parsed between the first token and the end of the stream.
"""
