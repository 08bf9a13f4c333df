"""Perception: predicts a request's task type and the length of its answer, from the prompt alone.

Invariants:
- A backend answers whatever a prompt holds.
  [tests/perception/test_perception_rules.py::test_any_prompt_gets_a_sane_estimate]
- A batch that fails all the same is answered by the prior.
  [tests/perception/test_perception_agent.py::test_a_failed_or_miscounted_batch_falls_back_and_the_next_runs]
- Text is cut to a fixed window before anything reads it, so the cost of a request does not grow with its prompt.
  [tests/perception/test_prompt_features.py::test_window_keeps_both_ends]
  [tests/perception/test_perception_rules.py::test_hostile_prompts_are_cut_before_any_pattern_runs]
- `max_tokens` caps a prediction and never makes one.
  [tests/perception/test_perception_agent.py::test_max_tokens_caps_and_never_predicts]
- Nothing is sent to third parties: ONNX Runtime's own telemetry stays off unless `ORT_DISABLE_TELEMETRY` enables it.
  [tests/perception/test_model_backend.py::test_the_runtime_tells_nobody]
"""
