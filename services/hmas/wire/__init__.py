"""Protobuf on the wire, dataclasses inside: generated messages (`v1`) and the one codec between the two.

Invariants
- A dataclass and its message have the same name and the same field names; a difference fails at import.
- Decoding never raises anything but `WireError`; unknown fields of a newer peer are ignored.
- Instants never cross: a request's `arrival_s` becomes a duration in `execution.py`, and nowhere else.
"""
