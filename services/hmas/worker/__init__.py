"""The worker: one request queue in front of the engines of one model, from which requests are granted to gateways in
the order of the active topology as memory and limits allow (H-MAS §3.5). Gateways carry the grants out.

`WorkerAgent(config, rng).step(now_s, event)` decides everything; the shell and the simulator drive the same agent.

Invariants
- The gateways' ledgers are the truth and the worker's books are soft: what a gateway does not name when its stream
  opens is forgotten, and what it names as running is counted whatever the limits.
- A slot is free again by `Ended`, by `Declined` or by the engine's own count, never by having sent `Stop`.
- A request has at most one grant at a time. It is granted again only after the gateway said that no token of it came,
  and never to the same start of an engine that failed with it.
- Nothing is granted to an engine that was not sampled since it came up. What an engine runs beyond the books counts
  against its limits.
- Before each grant, fewer than min(N_run, B_token) requests are in flight on the engine, and the peak of the KV
  blocks that they and the new one need fits M_cap (1 - delta_frag) (H-MAS Eq. 2).
- A switch of topology loses no request and grants none twice; the queue is ordered as if freshly built.
- Bypass outranks the control tuple, which outranks the static limits. An expired control is replaced by the safe
  default.
- No decision uses a real output length before the request ends, and none waits for an annotation.
- Queue, memory of ended requests, fairness state, telemetry batches and grants per call are bounded.
- The same events at the same times with the same generator give the same effects.
"""
