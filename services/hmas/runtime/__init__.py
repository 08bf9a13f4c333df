"""The shells' common ground: the only place with clocks, NATS, gRPC servers, settings, logging and lifecycle.

Invariants
- One event loop per process; an agent is stepped by its `AgentHost` alone, never concurrently, never re-entrantly.
- Publishing never blocks and never fails a caller: without NATS, messages are dropped and counted. Serving goes on.
- Every queue is bounded. What a service does all its life runs under one `lifecycle.run_until`: the first failure ends
  all of it, and SIGTERM and SIGINT start the drain. Who starts a shorter task holds it until it ends.
"""

import os

# Read by gRPC when it is first imported. Its newer event engine hands each message through several threads; on a core
# that gateway and worker share, a message costs a fifth less without it. Its chatter at shutdown is no news.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener,-event_engine_callback_cq")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
