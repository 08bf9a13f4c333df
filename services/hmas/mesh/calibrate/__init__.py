"""`hmas calibrate`: measures a live OpenAI endpoint and writes an engine profile for the emulator.

Planning, observing and fitting are pure; only `client.py`, `probe.py`, `journal.py` and `cli.py` do I/O.

Invariants:
- A calibration sends at most the budgeted number of requests.
  [tests/mesh/calibrate/test_calibration.py::test_a_plan_stays_within_its_budget]
- A measurement is on disk before the next begins, so that an interrupted calibration continues where it stopped.
  [tests/mesh/calibrate/test_calibration.py::test_an_interrupted_calibration_goes_on]
"""
