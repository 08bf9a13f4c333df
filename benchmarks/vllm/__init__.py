"""Compares the mesh in front of a real vLLM with that vLLM alone: `make bench-vllm`.

What the method demands:
- All systems get the same trace, SLOs and seeds; the engine's flags differ only in the scheduler class.
- The rate follows from λ* of plain vLLM, which is measured before the mesh, as in `make run-compare`.
- The engine core has a processor of its own, as on a GPU; all other processes share the others, so that the engine is
  the bottleneck.
"""
