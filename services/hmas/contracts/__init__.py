"""The values, events and effects that the rooms exchange. This package imports no other package of the project.

Invariants
- Every value is a frozen, slotted dataclass or a `StrEnum`; nothing here does I/O or reads a clock.
- Times are seconds as floats. Fields such as `age_s`, `waited_s` and `valid_for_s` are durations and may cross hosts.
  Instants (`arrival_s`, `now_s`) are on the monotonic clock of the process that holds the value and never cross hosts.
- Token counts are integers where observed and floats where predicted.
- Each dataclass that crosses the wire has a protobuf message of the same name and field names (`hmas.wire`).
"""
