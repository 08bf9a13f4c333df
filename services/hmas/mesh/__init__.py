"""The `hmas` command, and the embedded mesh: a NATS server and every service on one machine.

Invariants
- One process a service, as in production; the supervisor starts them, restarts what dies, and leaves none behind.
- Everything another command needs to find the mesh stands in `<data dir>/mesh.json`.
"""
