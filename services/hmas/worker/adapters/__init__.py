"""Engine adapters: each watches one engine and steers it. Requests reach the engine from gateways, never from here.

Invariants
- An engine is announced as up only after it answered a probe, and as down once its breaker opened. A sample follows
  each announcement at once, because nothing is granted to an engine that was not sampled since it came up.
- A sample is as old as its request: what an engine began after that is not in it, and `age_s` says so.
- Neither a request that an engine refuses as invalid, nor one that the worker stopped, nor a gateway that cannot reach
  the engine opens its breaker.
- Only here are an engine's admin paths used, and only there is its admin key sent.
- Connections and metrics pages are bounded.
"""
