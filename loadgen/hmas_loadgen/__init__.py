"""Sends open-loop load to any OpenAI-compatible endpoint: reads traces, makes prompts of exact length, and scores
the answers by DESIGN §8.

Invariants
- Open loop: a request leaves at its scheduled instant whatever the server does. The generator's own lateness (lag)
  is measured, and a run whose median lag exceeds 10 ms is marked invalid.
- Every scheduled request has exactly one record. A request that was refused, failed or cut off counts as offered.
- The true output length never enters a field that a scheduler may read, unless the run is declared
  `direct` (`Lengths.DIRECT`).
- TTFT and TPOT are measured from the instant at which the request was really sent; the lag is reported beside
  them.
- The same trace, options and seed give the same schedule and the same request bodies.
- The package imports `hmas.contracts`, `hmas.laws` and libraries, but no other room of `services/hmas`.
"""
