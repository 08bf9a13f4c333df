"""Sends open-loop load to any OpenAI-compatible endpoint: reads traces, makes prompts of exact length, and scores
the answers by DESIGN §8.

Invariants:
- Open loop: a request leaves at its scheduled instant whatever the server does.
  [tests/loadgen/runner/test_open_loop_run.py::test_the_loop_stays_open_while_the_server_hangs]
- The generator's own lateness (lag) is measured, and a run whose median lag exceeds 10 ms is marked invalid.
  [tests/loadgen/runner/test_open_loop_run.py::test_a_lagging_generator_says_so]
- Every scheduled request has exactly one record. A request that was refused, failed or cut off counts as offered.
  [tests/loadgen/runner/test_open_loop_run.py::test_every_request_is_sent_once_on_schedule_and_scored]
  [tests/loadgen/runner/test_open_loop_run.py::test_shed_requests_count_as_offered_and_errors_are_grouped]
- The true output length never enters a field that a scheduler may read, unless the run is declared `direct`
  (`Lengths.DIRECT`). [tests/loadgen/test_replay_body.py::test_only_the_opaque_field_knows_the_length]
  [tests/loadgen/test_replay_body.py::test_headers_do_not_know_the_length_either_and_slos_go_only_when_asked]
- TTFT and TPOT are measured from the instant at which the request was really sent; the lag is reported beside them.
  [tests/loadgen/test_load_scoring.py::test_latencies_count_from_the_real_send_and_lag_stands_apart]
- The same trace, options and seed give the same prompts.
  [tests/loadgen/test_prompts_exact.py::test_deterministic_by_seed_and_index]
- The package imports `hmas.contracts`, `hmas.laws` and libraries, and of the rooms one module alone,
  `hmas.runtime.http1`. [tests/house/test_imports.py::test_the_rules_hold]
"""
