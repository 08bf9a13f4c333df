"""The commands `hmas compare` and `hmas replay`: one trace through the mesh, and directly at the same engines.

Invariants
- Engine profile, SLOs and trace are fixed before anything is measured, and are the same for both sides.
- "Direct" means that each request goes to the engine with the fewest open requests, as a client library or a simple
  proxy would send it.
- A run in which the emulated engines lag behind their own clock is invalid: it measures the CPU, not the schedule.
"""
