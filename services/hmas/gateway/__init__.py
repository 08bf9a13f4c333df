"""The gateway, the OpenAI-compatible API of the mesh: tenants and their limits, routing, relay of answers, settlement.

Invariants:
- Every request that the agent receives ends in exactly one `Refuse` or `Settle`, whichever process dies.
  [tests/shortpath/test_protocol_properties.py::test_whatever_happens]
- A request waits at one worker at a time and runs on one engine at a time.
  [tests/gateway/test_gateway_agent_properties.py::ledger_engines_and_workers_agree]
- After the first token nothing is retried.
  [tests/gateway/test_stalls.py::test_before_its_first_token_a_run_moves_elsewhere_and_afterwards_it_ends]
- Bodies and keys go only to engines that the gateway's own configuration allows, and only to the paths of
  `hmas.contracts.registry.API_PATHS`.
  [tests/gateway/engines/test_endpoints.py::test_only_what_a_pattern_names_is_allowed]
  [tests/gateway/engines/test_endpoints.py::test_no_other_path_can_be_requested]
- A question to cognition ends once, in an annotation or in a fallback to the prior.
  [tests/gateway/test_cognition_queue.py::test_answers_that_come_twice_or_to_the_wrong_call_change_nothing]
- Token bytes are relayed unchanged.
  [tests/gateway/test_gateway_server.py::test_a_streamed_answer_is_relayed_byte_by_byte]
- The numbers of requests, held requests, batches and connections are bounded, and so are the bytes of bodies and of
  answers that wait for their client.
  [tests/gateway/test_gateway_bounds.py::test_full_connections_make_room]
  [tests/gateway/test_gateway_bounds.py::test_bodies_of_waiting_requests_are_bounded]
  [tests/gateway/test_gateway_bounds.py::test_a_client_that_never_reads_is_given_up]
- No body holds the event loop for long. [tests/hostile/test_largest_bodies.py::test_no_body_holds_the_loop]
- `agent/` is pure. [tests/house/test_imports.py::test_a_clock_is_refused_in_every_agent]
"""
