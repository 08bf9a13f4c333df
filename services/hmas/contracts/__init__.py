"""What the rooms say to one another: values, events, effects, metrics. It imports nothing of ours.

Invariants
- Every value is a frozen, slotted dataclass or a `StrEnum`; nothing here does I/O or reads a clock.
- Times are seconds as floats. `*_s` fields named `age_s`, `waited_s`, `valid_for_s` are durations and may cross
  hosts; instants (`arrival_s`, `now_s`) are on the local monotonic clock of whoever holds the value and never do.
- Token counts are integers where observed and floats where predicted.
- Each dataclass that crosses the wire has a protobuf message of the same name and field names (`hmas.wire`).
"""
