"""The gateway, the OpenAI-compatible API of the mesh: tenants and their limits, routing, relay of answers, settlement.

Invariants
- Every request that the agent receives ends in exactly one `Refuse` or `Settle`, whichever process dies. Events that
  come after the end, and events of an older attempt, change nothing.
- A request is at one worker at a time. It moves only before its first token: after its worker is lost it is tried once
  on each other worker of the pool, and after a handback it is sent again. After the first byte nothing is retried.
- No request waits for cognition: it is submitted when it arrives and annotated when its tags come. Each question to
  cognition ends exactly once, in an annotation or in a fallback to the prior.
- The agent sees no bodies and no token frames, only the first token and the end. Token bytes are relayed unchanged.
- The numbers of requests, held requests, batches, connections and recalls are bounded, and so are the bytes of bodies
  and of answers that wait for their client.
- These modules are pure: `agent/`, and those that read and write the API (`openai/body.py`, `openai/errors.py`,
  `tenants/terms.py`, `tenants/file.py`). All other modules belong to the shell.
"""
