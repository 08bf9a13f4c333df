"""What the shells of all services share: clocks, NATS, gRPC servers, settings, logging, start and end of a process.

A process has one event loop, and an agent is stepped by its `AgentHost` alone.

Invariants:
- A step that raises is logged and counted, and the next event follows; so is an effect, and the next effect follows.
  [tests/runtime/test_agent_service.py::test_a_step_that_raises_is_logged_and_counted_and_the_next_event_follows]
  [tests/runtime/test_agent_service.py::test_an_effect_that_fails_costs_none_of_the_later_ones]
- Publishing never blocks and never raises: without NATS messages are dropped and counted, and requests are still
  served. [tests/runtime/test_bus_bucket_lease.py::test_publishing_without_a_server_neither_blocks_nor_raises]
- The tasks that a service runs all its life run under one `lifecycle.run_until`: the first failure ends them all, and
  SIGTERM or SIGINT starts the drain. [tests/runtime/test_lifecycle.py::test_the_first_failure_ends_all_and_is_raised]
  [tests/runtime/test_lifecycle.py::test_the_drain_runs_beside_the_rest_and_ends_it]
"""

import os

# gRPC reads these variables when it is first imported. Its newer event engine passes each message through several
# threads; where gateway and worker share a core, a message costs a fifth less without it. The messages that gRPC logs
# at shutdown are of no use.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener,-event_engine_callback_cq")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
