"""The `hmas` command, and the embedded mesh: a NATS server and every service on one machine.

Invariants
- Each service is a process of its own, as in production; the supervisor starts the processes, restarts those that die,
  and leaves none behind.
- `<data dir>/mesh.json` holds everything that another command needs to find the running mesh.
"""
