"""An emulated vLLM: the scheduler and memory of a real engine, with a cost model in the place of the GPU.

Invariants
- `EngineCore` and everything it is made of are pure: no I/O, no clock, no randomness. The simulator and the HTTP
  server (`server.py`, `shell.py`) drive the same core.
- Blocks in use plus free blocks are the profile's `num_gpu_blocks`, always.
- A request ends exactly once: after exactly its output tokens, or by an abort.
- The true output length is known to the engine alone, as it is in a real one only after the fact.
- `fast_forward` leaves the core in the very state, at the very floating-point time, that stepping would.
- Profiles are measured or chosen before any policy is compared on them, and say where they come from.
"""
