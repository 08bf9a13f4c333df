"""Statera: the admission fence, the concurrency set-point and the utilisation band (H-MAS §3.4.2, Algorithm 2).

Invariants
- Three loops on one error at three speeds: the inner one (B_token, in the worker, every cycle), the outer one
  (N_run, here), the seeker of the band (here, slowest). A slower loop moves only when the faster one is exhausted.
- N_run starts at its maximum and stays there until utilisation leaves the band: a light load is never throttled.
- b_min never falls below the running decodes plus one minimum prefill chunk.
- Errors of two predictor versions are never calibrated together.
- Without fresh views nothing is published: the worker's control runs out and its static limits hold.
"""
