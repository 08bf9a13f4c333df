"""The mesh in front of a real vLLM, beside that vLLM alone: `make bench-vllm`.

Invariants
- One trace, the same SLOs and seeds for all systems; the engine's flags differ in the scheduler class alone.
- The rate is set by plain vLLM's own capacity, as in `make run-compare`, before the mesh is measured.
- The engine core has a processor of its own, as on a GPU; all else shares the others. So the engine is the bottleneck,
  not what surrounds it.
"""
