"""An emulated vLLM: the scheduler and memory of a real engine, with a cost model in the place of the GPU.

Invariants
- `EngineCore` and everything it is made of are pure: no I/O, no clock, no randomness. The simulator and the HTTP
  server (`server.py`, `shell.py`) drive the same core.
- KV-cache blocks in use plus free blocks always equal the profile's `num_gpu_blocks`.
- A request ends exactly once: when all its output tokens are generated, or when it is aborted.
- Only the engine knows a request's true output length; schedulers learn it when the request has ended, as with a real
  engine.
- `fast_forward` leaves the core in exactly the state, and at exactly the floating-point time, that single steps would.
- Profiles are measured or chosen before any policy is compared on them, and each states where its figures come from.
"""
