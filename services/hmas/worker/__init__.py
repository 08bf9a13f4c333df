"""The worker: one request queue in front of the engines of one model, from which requests are dispatched in the order
of the active topology as memory and limits allow (H-MAS §3.5).

`WorkerAgent(config, rng).step(now_s, event)` decides everything; the shell and the simulator drive the same agent.

Invariants
- Every accepted attempt leaves exactly once: by `Conclude`, `Handback` or `Reject`. `Abort` is not an end.
- A request is on at most one engine at a time. It is dispatched again only after the engine failed with it before its
  first token, and never to the same start of that engine.
- Before each dispatch, fewer than min(N_run, B_token) requests are in flight on the engine, and the peak of the KV
  blocks that they and the new one need fits M_cap (1 - delta_frag) (H-MAS Eq. 2).
- A switch of topology loses no request and dispatches none twice; the queue is ordered as if freshly built.
- Bypass outranks the control tuple, which outranks the static limits. An expired control is replaced by the safe
  default.
- No decision uses a real output length before the request ends, and none waits for an annotation.
- Queue, memory of ended requests, fairness state, telemetry batches and dispatches per call are bounded.
- The same events at the same times with the same generator give the same effects.
"""
