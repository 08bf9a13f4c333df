"""The values, events and effects that the rooms exchange. This package imports no other package of the project.

Times are seconds as floats. Fields such as `age_s`, `waited_s` and `valid_for_s` are durations and may cross hosts.
Instants (`arrival_s`, `now_s`) are on the monotonic clock of the process that holds the value and never cross hosts.
Token counts are integers where observed and floats where predicted.

Invariants:
- Nothing here does I/O, reads a clock or draws a random number.
  [tests/house/test_imports.py::test_a_forbidden_import_is_refused]
- Each dataclass that crosses the wire has a protobuf message of the same name and field names (`hmas.wire`).
  [tests/wire/test_codec.py::test_round_trip]
"""
