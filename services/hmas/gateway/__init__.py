"""The OpenAI-compatible door of the mesh: tenants and limits, routing, the relay of answers, settlement.

Invariants
- Every request the agent receives ends in exactly one `Refuse` or `Settle`, whatever dies; later events of it, and
  events of an older attempt, change nothing.
- A request is at one worker at a time. It moves only before its first token: once to each other worker of the pool
  after a loss, or again after a handback. After the first byte nothing is ever retried.
- Nothing waits for cognition: a request is submitted when it arrives and annotated when the tags come. Each question
  to cognition ends exactly once, in an annotation or in a fallback.
- The agent sees no bodies and no token frames, only the first token and the end. Token bytes are relayed untouched.
- Requests, held requests, bodies, answer buffers, batches, connections and recalls are bounded.
- Pure: `agent/`, and what reads and writes the API (`openai/body.py`, `openai/errors.py`, `tenants/terms.py`,
  `tenants/file.py`). All other modules are shells.
"""
