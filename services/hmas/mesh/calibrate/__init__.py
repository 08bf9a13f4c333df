"""`hmas calibrate`: measures a live OpenAI endpoint and writes an engine profile for the emulator.

Invariants
- A calibration sends at most the budgeted number of requests, each with a timeout; apart from these it only reads the
  endpoint's model list and metrics.
- A measurement is on disk before the next begins, so that an interrupted calibration continues where it stopped.
- Planning, observing and fitting are pure; only `client.py`, `measure.py`, `journal.py` and `cli.py` do I/O.
"""
