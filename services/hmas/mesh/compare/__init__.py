"""`hmas compare` and `hmas replay`: the same trace through the mesh and straight at the same engines.

Invariants
- Engine profile, SLOs and trace are fixed before anything is measured, and are the same for both sides.
- "Direct" is plain least-outstanding balancing over the same engines: what a client library or a simple proxy does.
- A run in which the emulated engines lag behind their own clock measures the CPU, not the schedule: it is invalid.
"""
