"""The messages between services: generated protobuf classes (`v1`), and the one codec that converts them from and to
the dataclasses used inside the services. A dataclass and its message have the same name and the same field names; a
difference raises TypeError at import. No instant is sent, because clocks of hosts differ: `execution.py` turns a
request's `arrival_s` into a duration.

Invariants:
- Decoding raises nothing but `WireError`. [tests/wire/test_codec.py::test_bytes_that_are_no_message_are_a_wire_error]
- Fields that only a newer peer knows are ignored.
  [tests/wire/test_codec.py::test_unknown_fields_of_a_newer_peer_are_ignored]
- A request's age survives the way between two clocks.
  [tests/worker/test_stream_healing.py::test_every_message_arrives_in_order_with_instants_on_the_receivers_clock]
"""
