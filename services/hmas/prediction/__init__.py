"""Prediction: predicts the cost of a request on a worker: prefill time and time per output token, without queueing.

Invariants
- A cost model answers a batch and never sees a true output length.
- Every answer is corrected by what its worker measured recently, so a new accelerator needs no retraining.
- A model that is late, absent or returns nonsense costs only accuracy, because the linear profile answers instead.
"""
