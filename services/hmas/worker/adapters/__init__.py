"""Engine adapters: each connects the worker's shell with one engine.

Invariants
- A started job ends exactly once: by `JobSink.on_end`, or silently by `abort`; its sink is not called after that.
- Nothing here awaits, makes a task or parses JSON per token: bytes are handled where the transport delivers them.
- An engine is announced as up only after it answered a probe, and as down once its breaker opened; a request that the
  engine refuses as invalid never opens the breaker.
- Connections, waiting requests, answers, events and metrics pages are bounded.
"""
