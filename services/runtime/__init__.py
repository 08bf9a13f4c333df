"""The shells' common ground: the only place with clocks, NATS, gRPC servers, settings, logging and lifecycle.

Invariants
- One event loop per process; an agent is stepped by its `AgentHost` alone, never concurrently, never re-entrantly.
- Publishing never blocks and never fails a caller: without NATS, messages are dropped and counted. Serving goes on.
- Every queue is bounded. Every task belongs to the service's task group; SIGTERM and SIGINT start the drain.
"""
