"""Makes synthetic workloads, and changes the load of a trace whether recorded or synthetic. A function that scales the
load says how in the trace's note.

Invariants:
- Each result depends only on the arguments and the seed.
  [tests/loadgen/workloads/test_arrivals.py::test_same_seed_same_arrivals]
- Time compression keeps every request and makes bursts steeper; thinning and superposition keep the times and remove or
  add requests. [tests/loadgen/workloads/test_load_scaling.py::test_compression_keeps_every_request]
  [tests/loadgen/workloads/test_load_scaling.py::test_thinning_keeps_a_share_in_place]
  [tests/loadgen/workloads/test_load_scaling.py::test_superposition_keeps_the_span_and_the_original]
"""
