"""Perception: what a request is (task type) and how long its answer will be, read from the prompt alone.

Invariants
- A backend answers a batch and never raises for a prompt's content; what it does not know is None or `unknown`.
- Text is cut to a fixed window before anything reads it, so the cost of a request does not grow with its prompt.
- The true output length and `max_tokens` never enter a prediction; `max_tokens` only caps one.
- Training needs the extra `train`; serving needs ONNX Runtime and `tokenizers` alone.
- Nothing is told to anybody: ONNX Runtime's own telemetry stays off unless `ORT_DISABLE_TELEMETRY` says otherwise.
"""
