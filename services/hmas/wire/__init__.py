"""The messages between services: generated protobuf classes (`v1`), and the one codec that converts them from and to
the dataclasses used inside the services.

Invariants
- A dataclass and its message have the same name and the same field names; a difference raises TypeError at import.
- Decoding raises nothing but `WireError`. Fields that only a newer peer knows are ignored.
- No instant is sent, because clocks of hosts differ: `execution.py` turns a request's `arrival_s` into a duration.
"""
