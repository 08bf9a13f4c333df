"""Statera: the admission fence, the concurrency set-point and the utilisation band (H-MAS §3.4.2, Algorithm 2).

Invariants
- Three loops regulate utilisation at three speeds: the inner one (B_token, in the worker, every cycle), the outer one
  (N_run, here) and the seeker of the band (here, slowest). The outer loop moves only when the inner one is saturated.
- N_run starts at its maximum and stays there until utilisation leaves the band: a light load is never throttled.
- b_min never falls below the running decodes plus one minimum prefill chunk.
- Errors of two predictor versions are never calibrated together.
- Without fresh views nothing is published: the worker's control tuple expires and its static limits apply.
"""
