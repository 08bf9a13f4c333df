"""Engine adapters: one instance an engine, between the worker's shell and whatever serves the model.

Invariants
- A started job ends exactly once: by `JobSink.on_end`, or silently by `abort`; nothing is called after its end.
- Nothing here awaits, makes a task or parses JSON per token: bytes are handled where the transport delivers them.
- An engine is announced up only after it answered a probe, and down once its breaker opened; a job's own bad request
  never opens it.
- Connections, waiting requests, answers, events and metrics pages are bounded.
"""
