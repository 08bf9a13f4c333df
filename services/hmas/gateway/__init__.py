"""The gateway, the OpenAI-compatible API of the mesh: tenants and their limits, routing, relay of answers, settlement.

Invariants
- Every request that the agent receives ends in exactly one `Refuse` or `Settle`, whichever process dies. Events that
  come after the end, and events of an older attempt, change nothing.
- A request waits at one worker at a time and runs on one engine at a time: where its worker granted it or, while the
  worker is silent, where the gateway itself placed it. After the first token nothing is retried.
- Bodies and keys go only to engines that the gateway's own configuration allows, and only to the two paths that
  generate text.
- No request waits for cognition: it is submitted when it arrives and annotated when its tags come. Each question to
  cognition ends exactly once, in an annotation or in a fallback to the prior.
- The agent sees no bodies and no token frames, only the first token and the end. Token bytes are relayed unchanged.
- The numbers of requests, held requests, batches and connections are bounded, and so are the bytes of bodies
  and of answers that wait for their client.
- These modules are pure: `agent/`, and those that read and write the API (`openai/body.py`, `openai/errors.py`,
  `tenants/terms.py`, `tenants/file.py`). All other modules belong to the shell.
"""
