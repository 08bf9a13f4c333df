"""Statera calibrates the admission fence, fits what a step of each engine costs, and tells both to the workers in a
control tuple (H-MAS §3.4.2, Algorithm 2). The loops of Algorithm 2, which move N_run and the utilisation band, run only
with `HMAS_N_RUN_RULE=band`; the default bounds an engine by the time of its step.

Invariants:
- Utilisation moves no limit unless the operator asks for that rule.
  [tests/statera/test_statera_agent.py::test_utilisation_moves_no_limit_unless_told_to]
- N_run starts at its maximum and stays there until utilisation leaves the band: a light load is never throttled.
  [tests/statera/test_band.py::test_a_light_load_is_never_throttled]
- b_min never falls below the running decodes plus one minimum prefill chunk.
  [tests/statera/test_band.py::test_b_min_leaves_room_for_running_decodes_and_a_prefill_chunk]
- Errors of two predictor versions are never calibrated together.
  [tests/statera/test_fence.py::test_every_predictor_in_use_has_its_own_factors]
- Without fresh views nothing is published: the worker's control tuple expires and its static limits apply.
  [tests/statera/test_statera_agent.py::test_without_views_the_tuple_runs_out]
"""
