"""Prediction: predicts the cost of a request on a worker: prefill time and time per output token, without queueing.

Invariants:
- Every answer is corrected by what its worker measured recently, so a new accelerator needs no retraining.
  [tests/prediction/test_prediction_agent.py::test_measurements_correct_the_worker_they_come_from]
- A model that is late, absent or returns nonsense costs only accuracy, because the linear profile answers instead.
  [tests/prediction/test_prediction_agent.py::test_a_model_that_fails_costs_only_accuracy]
  [tests/prediction/test_prediction_agent.py::test_a_late_model_never_delays_the_answer]
"""
