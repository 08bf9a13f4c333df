"""Engine adapters: each watches one engine and steers it. Requests reach the engine from gateways, never from here.

Invariants:
- An engine is announced as up only after it answered a probe, and as down once its breaker opened.
  [tests/worker/adapters/test_breaker.py::test_an_engine_is_used_once_it_answered_a_probe]
- A sample follows each announcement at once, because nothing is granted to an engine that was not sampled since it came
  up.
  [tests/worker/adapters/test_openai_http.py::test_an_engine_is_announced_with_what_it_tells_of_itself_and_sampled_at_once]
- A sample is as old as its request: what an engine began after that is not in it, and `age_s` says so.
  [tests/worker/adapters/test_openai_http.py::test_a_sample_is_as_old_as_its_request]
- Neither a request that an engine refuses as invalid, nor one that the worker stopped, nor a gateway that cannot reach
  the engine opens its breaker.
  [tests/worker/adapters/test_openai_http.py::test_what_is_not_the_engines_fault_never_opens_the_breaker]
- The admin key of an engine is sent to its admin paths alone.
  [tests/worker/adapters/test_sglang_contract.py::test_the_admin_key_goes_to_admin_paths_only]
- Metrics pages are bounded. [tests/worker/adapters/test_engine_figures.py::test_an_endless_page_is_cut]
"""
