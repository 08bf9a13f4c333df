"""What the shells of all services share: clocks, NATS, gRPC servers, settings, logging, start and end of a process.

Invariants
- A process has one event loop. An agent is stepped by its `AgentHost` alone, never concurrently and never from within
  another step.
- Publishing never blocks and never raises: without NATS messages are dropped and counted, and requests are still
  served.
- Every queue is bounded. The tasks that a service runs all its life run under one `lifecycle.run_until`: the first
  failure ends them all, and SIGTERM or SIGINT starts the drain. Code that starts a shorter task keeps a reference to it
  until it ends.
"""

import os

# gRPC reads these variables when it is first imported. Its newer event engine passes each message through several
# threads; where gateway and worker share a core, a message costs a fifth less without it. The messages that gRPC logs
# at shutdown are of no use.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener,-event_engine_callback_cq")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
