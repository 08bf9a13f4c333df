"""The worker: one request queue in front of the engines of one model, ordered, admitted and pumped (H-MAS §3.5).

`WorkerAgent(config, rng).step(now_s, event)` is the whole of it; the shell and the simulator drive the same agent.

Invariants
- Every accepted attempt leaves exactly once: by `Conclude`, `Handback` or `Reject`. `Abort` is not an end.
- A request is on at most one engine at a time; a second `Dispatch` follows only the end of the first (the engine
  failed before its first token), never on the same start of the same engine.
- At each dispatch: requests in flight on the engine < min(N_run, B_token), and the blocks reserved on it, the new
  ones included, fit M_cap (1 - delta_frag) (H-MAS Eq. 2).
- A switch of topology loses nothing and dispatches nothing twice; what remains is ordered as if freshly built.
- Precedence of controls: bypass > control tuple > static limits. What ran out is replaced by the safe default.
- No decision looks at a real output length before the request ends, nor waits for an annotation.
- Queue, memory of ended requests, fairness state, telemetry batches and dispatches per call are bounded.
- The same events at the same times with the same generator give the same effects.
"""
