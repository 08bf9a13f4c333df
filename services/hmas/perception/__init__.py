"""Perception: predicts a request's task type and the length of its answer, from the prompt alone.

Invariants
- A backend answers a batch and never raises for a prompt's content; where it knows nothing, its answer is None or
  `unknown`.
- Text is cut to a fixed window before anything reads it, so the cost of a request does not grow with its prompt.
- The true output length and `max_tokens` never enter a prediction; `max_tokens` only caps one.
- Training needs the extra `train`; serving needs ONNX Runtime and `tokenizers` alone.
- Nothing is sent to third parties: ONNX Runtime's own telemetry stays off unless `ORT_DISABLE_TELEMETRY` enables it.
"""
