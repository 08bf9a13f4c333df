"""Prediction: what a request will cost on a worker: prefill time and time per output token, both without queueing.

Invariants
- A cost model answers a batch and never sees a true output length.
- Every answer is corrected by what its worker lately measured, so a new accelerator needs no retraining.
- A model that is late, absent or wrong in shape costs nothing but accuracy: the linear profile answers.
"""
