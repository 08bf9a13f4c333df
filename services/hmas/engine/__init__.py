"""An emulated vLLM: the scheduler and memory of a real engine, with a cost model in the place of the GPU.

The simulator and the HTTP server (`server.py`, `shell.py`) drive the same `EngineCore`. Profiles are measured or chosen
before any policy is compared on them.

Invariants:
- `EngineCore` and everything it is made of are pure: no I/O, no clock, no randomness.
  [tests/house/test_imports.py::test_a_forbidden_import_is_refused]
- KV-cache blocks in use plus free blocks always equal the profile's `num_gpu_blocks`.
  [tests/engine/test_engine_core_properties.py::memory_adds_up]
- A request that is not aborted ends with its last output token, and an aborted one frees its memory in every state.
  [tests/engine/test_engine_core.py::test_first_token_comes_with_the_end_of_prefill_and_output_tokens_are_exact]
  [tests/engine/test_engine_core.py::test_abort_frees_at_once_in_every_state]
- `fast_forward` leaves the core in exactly the state, and at exactly the floating-point time, that single steps would.
  [tests/engine/test_engine_core_properties.py::test_fast_forward_equals_stepping_to_the_last_bit]
- Each profile states where its figures come from.
  [tests/engine/test_engine_profile.py::test_every_builtin_profile_says_where_it_comes_from]
"""
