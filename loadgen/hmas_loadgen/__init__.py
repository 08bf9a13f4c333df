"""Open-loop load for any OpenAI-compatible endpoint: traces in, prompts of exact length out, scores by DESIGN §8.

Invariants
- Open loop: a request leaves at its scheduled instant whatever the server does; the generator's own lateness is
  measured, and a run whose median lag exceeds 10 ms calls itself invalid.
- Every scheduled request has exactly one record. What was refused, failed or cut off counts as offered.
- The true output length never enters a field that a scheduler may read, unless the run is declared `direct`.
- TTFT and TPOT are measured from the instant at which the request was really sent; lag is reported beside them.
- Same trace, same options, same seed: the same schedule and the same bodies.
- It imports `hmas.contracts` and libraries, and no room.
"""
