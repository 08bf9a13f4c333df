"""The worker: one request queue in front of the engines of one model, from which requests are granted to gateways in
the order of the active topology as memory and limits allow (H-MAS §3.5). Gateways carry the grants out.

`WorkerAgent(config).step(now_s, event)` decides everything; the shell and the simulator drive the same agent.

Invariants:
- The gateways' ledgers are the truth and the worker's books are soft: what a gateway does not name when its stream
  opens is forgotten, and what it names as running is counted whatever the limits.
  [tests/worker/test_worker_gateways.py::test_what_the_snapshot_does_not_name_is_over]
  [tests/worker/test_worker_gateways.py::test_adopting_occupies_whatever_the_limits_and_raises_the_numbers_of_grants]
- A slot is free again by `Ended`, by `Declined` or by the engine's own count, never by having sent `Stop`.
  [tests/worker/test_worker_gateways.py::test_a_grant_without_an_answer_is_stopped_once_and_keeps_its_slot]
- A request has at most one grant at a time, and is granted again only after its gateway said that no token of it came.
  [tests/shortpath/test_protocol_properties.py::test_whatever_happens]
- Nothing is granted to an engine that was not sampled since it came up. What an engine runs beyond the books counts
  against its limits.
  [tests/worker/test_worker_gateways.py::test_an_engine_that_came_up_gets_nothing_before_a_sample_taken_since]
  [tests/worker/test_worker_gateways.py::test_strangers_count_from_the_second_sample_on_and_go_with_the_first]
- Before each grant, fewer than min(N_run, B_token) requests are in flight on the engine, and the peak of the KV blocks
  that they and the new one need fits M_cap (1 - delta_frag), or M_cap for a small request (H-MAS Eq. 2).
  [tests/worker/test_worker_agent.py::test_concurrency_is_capped_and_the_least_loaded_engine_is_chosen]
  [tests/worker/test_admission_gate.py::test_gate_lets_a_small_request_fill_the_margin]
- A switch of topology loses no request and grants none twice; the queue is ordered as if freshly built.
  [tests/worker/test_request_queue.py::test_after_a_switch_the_order_is_as_if_freshly_built]
- Bypass outranks the control tuple, which outranks the static limits. An expired control is replaced by the safe
  default. [tests/worker/test_worker_agent.py::test_bypass_outranks_the_tuple_and_lifts_the_fence]
  [tests/worker/test_worker_agent.py::test_controls_expire_once_into_the_safe_default]
- A request waits for its tags for a bounded time, and only while tags come in time: 120 ms, or 300 ms where the layout
  has classes and tags alone can tell the request's.
  [tests/worker/test_tag_wait.py::test_where_tags_come_late_nobody_waits_for_them]
  [tests/worker/test_lanes.py::test_a_request_without_tags_waits_for_its_class_but_not_for_long]
- No decision uses a real output length before it shows.
  [tests/sim/test_mesh_sim.py::test_true_lengths_change_no_decision_before_they_show]
- The same events at the same times give the same effects.
  [tests/sim/test_replay.py::test_a_fresh_agent_takes_the_same_steps]
"""
