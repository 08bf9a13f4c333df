"""`hmas calibrate`: measures a live OpenAI endpoint and writes an engine profile for the emulator.

Invariants
- Never more requests than the budget, each with a time-out; nothing else is asked of the endpoint but its model list
  and its metrics.
- A measurement is written down before the next begins, so that an interrupted calibration goes on where it stopped.
- Planning, observing and fitting are pure; only `client.py`, `measure.py`, `journal.py` and `cli.py` touch the world.
"""
