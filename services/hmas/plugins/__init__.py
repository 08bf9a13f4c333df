"""Plug-ins that run inside inference engines. A plug-in does no network I/O and no blocking I/O in the engine's
process: controls come in a small file in shared memory.

Invariants:
- They import nothing else of H-MAS: an engine's image needs only them.
  [tests/package/test_plugin_copy.py::test_a_copy_of_the_package_is_all_the_scheduler_needs]
- Every value is clamped to the engine's own limits.
  [tests/plugins/vllm/test_chunking.py::test_any_observations_give_a_chunk_within_bounds]
  [tests/plugins/vllm/test_control_block.py::test_packing_clamps]
- What is missing, torn or no file does no harm: the engine's own behaviour takes over.
  [tests/plugins/vllm/test_control_block.py::test_channel_does_not_block_or_fail_on_what_is_no_file]
- Controls that the worker does not renew expire.
  [tests/plugins/vllm/test_control_block.py::test_channel_follows_the_writer_and_forgets_what_is_not_renewed]
"""
